#include "death/doomed.hpp"

#include <utility>

namespace hvd::test {
namespace {

class DoomedTransport final : public Transport {
 public:
  DoomedTransport(std::unique_ptr<Transport> inner, Doom& doom)
      : inner_(std::move(inner)), doom_(doom) {}
  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    doom_.visit("exchange");
    Incoming doomed = in;
    if (in.sink) {
      doomed.sink = [&](std::size_t offset, std::span<const std::byte> bytes) {
        doom_.visit("message");
        in.sink(offset, bytes);
      };
    }
    inner_->exchange(out, doomed, deadline);
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  std::unique_ptr<Transport> inner_;
  Doom& doom_;
};

class DoomedBackend final : public Backend {
 public:
  DoomedBackend(std::unique_ptr<Backend> inner, Doom& doom)
      : inner_(std::move(inner)), doom_(doom) {}
  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override {
    return inner_->supports(kind, device, dtype, op);
  }
  void allreduce(const AllreduceCall& call, Deadline deadline) override {
    doom_.visit("allreduce");
    inner_->allreduce(call, deadline);
  }
  void allgather(const AllgatherCall& call, Deadline deadline) override {
    doom_.visit("allgather");
    inner_->allgather(call, deadline);
  }
  void broadcast(const BroadcastCall& call, Deadline deadline) override {
    doom_.visit("broadcast");
    inner_->broadcast(call, deadline);
  }
  void reducescatter(const ReducescatterCall& call, Deadline deadline) override {
    doom_.visit("reducescatter");
    inner_->reducescatter(call, deadline);
  }
  void alltoall(const AlltoallCall& call, Deadline deadline) override {
    doom_.visit("alltoall");
    inner_->alltoall(call, deadline);
  }
  void barrier(Deadline deadline) override {
    doom_.visit("barrier");
    inner_->barrier(deadline);
  }
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override {
    return std::make_unique<DoomedBackend>(inner_->subset(ranks, deadline), doom_);
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  std::unique_ptr<Backend> inner_;
  Doom& doom_;
};

}  // namespace

void Doom::arm(std::string_view point, int visit, int signal) {
  point_ = point;
  left_ = visit;
  signal_ = signal;
}

void Doom::visit(std::string_view point) {
  if (point == point_ && --left_ == 0) ::raise(signal_);
}

std::unique_ptr<Transport> make_doomed(std::unique_ptr<Transport> inner, Doom& doom) {
  return std::make_unique<DoomedTransport>(std::move(inner), doom);
}

std::unique_ptr<Backend> make_doomed(std::unique_ptr<Backend> inner, Doom& doom) {
  return std::make_unique<DoomedBackend>(std::move(inner), doom);
}

}  // namespace hvd::test
