#include <array>
#include <cmath>
#include <mutex>

#include <fmt/format.h>

#include <hvd/core/context.hpp>
#include <hvd/core/control_channel.hpp>
#include <hvd/core/log.hpp>

#include "coordinator/coordinator.hpp"

namespace hvd {
namespace {

constexpr std::size_t kMaxDimensions = 64;

[[noreturn]] void refuse(const Request& request, std::string_view why) {
  throw Error(Errc::invalid_argument,
              fmt::format("{} '{}': {}", to_string(request.kind), request.name, why));
}

/// Elements of the shape; refuses negative dimensions and products beyond 2⁶³−1 bytes.
std::int64_t checked_count(const Request& request) {
  if (request.shape.size() > kMaxDimensions) refuse(request, "too many dimensions");
  std::int64_t bytes = static_cast<std::int64_t>(size_of(request.dtype));
  bool empty = false;
  for (const std::int64_t dimension : request.shape) {
    if (dimension < 0) refuse(request, "a dimension is negative: " + to_string(request.shape));
    if (dimension == 0) empty = true;
    if (!empty && __builtin_mul_overflow(bytes, dimension, &bytes)) {
      refuse(request, "too many elements: " + to_string(request.shape));
    }
  }
  return empty ? 0 : element_count(request.shape);
}

void validate(const Submission& submission, int size) {
  const Request& request = submission.request;
  if (request.name.size() > kMaxNameBytes) refuse(request, "the name is longer than 1,024 bytes");
  if (request.kind == OpKind::barrier) return;
  const std::int64_t count = checked_count(request);
  if (count > 0 && !submission.input) refuse(request, "the input is null");
  switch (request.kind) {
    case OpKind::allreduce:
      if (request.dtype == DType::boolean && request.op == ReduceOp::average) {
        refuse(request, "average is not defined on bool");
      }
      if (!std::isfinite(request.prescale) || !std::isfinite(request.postscale)) {
        refuse(request, "a scale is not finite");
      }
      break;
    case OpKind::broadcast:
      if (request.root < 0 || request.root >= size) {
        refuse(request, fmt::format("root {} is not a rank of {}", request.root, size));
      }
      break;
    case OpKind::allgather:
      if (request.shape.empty()) refuse(request, "a scalar has no first dimension");
      if (!submission.allocate) refuse(request, "no allocator for the result");
      return;
    case OpKind::barrier:
      break;
  }
  if (count > 0 && !submission.output) refuse(request, "the output is null");
}

}  // namespace

struct Context::Impl {
  std::unique_ptr<Session> session;
  std::unique_ptr<Coordinator> coordinator;

  std::mutex unnamed_mutex;
  std::array<std::uint64_t, kOpKindCount> unnamed{};

  std::string next_name(OpKind kind) {
    const std::lock_guard lock(unnamed_mutex);
    return fmt::format("{}.unnamed.{}", to_string(kind), unnamed[static_cast<std::size_t>(kind)]++);
  }
};

Context::Context(std::unique_ptr<Session> session, std::vector<std::unique_ptr<Backend>> backends)
    : impl_(std::make_unique<Impl>()) {
  impl_->session = std::move(session);
  const Topology& topology = impl_->session->topology();
  std::unique_ptr<ControlChannel> channel;
  if (topology.size > 1) {
    channel = make_star_channel(impl_->session->loop(), impl_->session->network(), topology.rank,
                                topology.size, impl_->session->start_deadline());
  }
  impl_->coordinator =
      std::make_unique<Coordinator>(*impl_->session, std::move(channel), std::move(backends));
}

Context::~Context() {
  try {
    shutdown();
  } catch (const std::exception& error) {
    log(LogLevel::info, rank(), fmt::format("shutdown: {}", error.what()));
  }
}

const Topology& Context::topology() const noexcept { return impl_->session->topology(); }
const Config& Context::config() const noexcept { return impl_->session->config(); }

Work Context::submit(Submission submission) {
  Request& request = submission.request;
  if (request.name.empty()) request.name = impl_->next_name(request.kind);
  validate(submission, size());
  return impl_->coordinator->submit(std::move(submission));
}

Stats Context::stats() const { return impl_->coordinator->stats(); }
void Context::abort(const std::string& reason) noexcept { impl_->coordinator->abort(reason); }
void Context::shutdown() { impl_->coordinator->shutdown(); }
void Context::disconnect() noexcept { impl_->coordinator->disconnect(); }

}  // namespace hvd
