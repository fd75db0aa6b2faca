#include "hierarchy/hierarchical_backend.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/topology.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "fusion/address.hpp"
#include "fusion/identity.hpp"
#include "fusion/staging.hpp"
#include "hierarchy/rounds.hpp"
#include "transport/rank_view.hpp"

namespace hvd::detail {
namespace {

constexpr std::size_t kLeadersBelow = std::size_t{16} << 10;
constexpr std::size_t kLeastSegment = std::size_t{64} << 10;
/// The most rounds that are in progress at a time, one in each stage.
constexpr std::size_t kInFlight = 3;

/// Tells whether a call cannot be divided into a step within the hosts and one between them. A mean
/// of integers needs widened sums, which the first step does not hand on. A prescale would also
/// apply to the identity elements that replace absent inputs, and only that of a sum, zero, stays
/// the same when it is scaled.
template <class Call>
bool takes_one_step(const Call& call) {
  if (call.op == ReduceOp::average) return !is_floating_point(call.dtype);
  return call.op != ReduceOp::sum && call.prescale != 1.0;
}

/// Returns the operation of the first step. The second step divides.
ReduceOp without_mean(ReduceOp op) { return op == ReduceOp::average ? ReduceOp::sum : op; }

/// Reserves memory for the largest segment of the tensors whose `end`, input or output, is null.
/// Returns it with its number of elements.
template <class Byte>
std::pair<std::byte*, std::int64_t> replacement(Byte* TensorSlice::*end, FusionBuffer& buffer,
                                                const AllreduceCall& call, std::int64_t most) {
  std::int64_t elements = 0;
  for (const TensorSlice& tensor : call.tensors) {
    if (tensor.*end == nullptr) elements = std::max(elements, std::min(tensor.count, most));
  }
  return {buffer.reserve(bytes_of(elements, call.dtype)), elements};
}

}  // namespace

/// Holds the rounds of an allreduce through lanes, and the three stages of each round. `reduce` is
/// a reducescatter within the host: afterwards each local rank has the host's sums of the lanes
/// that it owns, in a slot. `cross` is an allreduce of each of these lanes among its owners, one on
/// every host: afterwards the slot holds results. `spread` is an allgather within the host, which
/// gives every rank the results of all lanes.
class HierarchicalBackend::Stages {
 public:
  Stages(HierarchicalBackend& owner, const AllreduceCall& call, std::int64_t most,
         Deadline deadline)
      : owner_(owner),
        call_(call),
        deadline_(deadline),
        op_(without_mean(call.op)),
        rounds_(plan_rounds(call.tensors, most)) {
    for (const Round& round : rounds_) {
      slices_.emplace_back(owner.lanes_, round, call.dtype);
      slot_ = std::max(slot_, slices_.back().size());
    }
    slots_ = owner.slices_.reserve(slot_ * std::min(kInFlight, rounds_.size()));
    discarded_ = replacement(&TensorSlice::output, owner.discarded_, call, most).first;
    const auto [absent, elements] = replacement(&TensorSlice::input, owner.absent_, call, most);
    fill_identity(call.dtype, op_, absent, elements);
    absent_ = absent;
  }

  [[nodiscard]] std::size_t size() const noexcept { return rounds_.size(); }

  void reduce(std::size_t k) const {
    const auto slices = slices_[k].contributions(call_.tensors, absent_, slot(k));
    owner_.host_->reducescatter({slices, call_.device, call_.dtype, op_, call_.prescale, 1.0},
                                deadline_);
  }
  void cross(std::size_t k) const {
    for (std::size_t n = 0; n < owner_.across_.size(); ++n) {
      const auto slices = slices_[k].lane(slot(k), static_cast<int>(n));
      owner_.across_[n]->allreduce({slices, call_.device, call_.dtype, call_.op, 1.0,
                                    call_.postscale, owner_.contributors(call_), nullptr},
                                   deadline_);
    }
  }
  void spread(std::size_t k) const {
    const auto slices = slices_[k].results(call_.tensors, slot(k), discarded_);
    owner_.host_->allgather({slices, call_.device, call_.dtype}, deadline_);
  }

 private:
  [[nodiscard]] std::byte* slot(std::size_t k) const { return slots_ + k % kInFlight * slot_; }

  HierarchicalBackend& owner_;
  const AllreduceCall& call_;
  const Deadline deadline_;
  const ReduceOp op_;
  const std::vector<Round> rounds_;
  std::vector<RoundSlices> slices_;
  std::size_t slot_ = 0;
  std::byte* slots_ = nullptr;
  const std::byte* absent_ = nullptr;
  std::byte* discarded_ = nullptr;
};

HierarchicalBackend::HierarchicalBackend(std::unique_ptr<Backend> flat,
                                         std::unique_ptr<Backend> host, HierarchyOptions options)
    : flat_(std::move(flat)),
      host_(std::move(host)),
      options_(std::move(options)),
      lanes_(plan_lanes(options_.host_of, options_.rank)),
      comm_thread_([this] { host_->abort(); }) {
  if (!host_) return;
  even_ = EvenHosts::of(options_.host_of);
  for (const std::vector<int>& owners : lanes_.owners) {
    across_.push_back(flat_->subset(owners, options_.deadline));
  }
}

AlgorithmTable HierarchicalBackend::default_table() {
  return AlgorithmTable(Algorithm::leaders).from(kLeadersBelow, Algorithm::lanes, kSegment);
}

bool HierarchicalBackend::supports(OpKind kind, Device device, DType dtype,
                                   ReduceOp op) const noexcept {
  // `host_` supports less: it cannot average booleans. That does not matter, because `flat_` alone
  // computes averages of integers and booleans.
  return flat_->supports(kind, device, dtype, op);
}

void HierarchicalBackend::abort() noexcept {
  whole_->flat_->abort();
  if (whole_->host_) whole_->host_->abort();
}

void HierarchicalBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  guard([&] {
    if (!even_) return flat_->allgather(call, deadline);
    gather_through_lanes(call, deadline);
  });
}

void HierarchicalBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  guard([&] { flat_->broadcast(call, deadline); });
}

void HierarchicalBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  guard([&] {
    if (!even_ || takes_one_step(call)) return flat_->reducescatter(call, deadline);
    scatter_through_lanes(call, deadline);
  });
}

void HierarchicalBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  guard([&] { flat_->alltoall(call, deadline); });
}

void HierarchicalBackend::barrier(Deadline deadline) {
  guard([&] { flat_->barrier(deadline); });
}

std::unique_ptr<Backend> HierarchicalBackend::subset(std::span<const int> ranks,
                                                     Deadline deadline) {
  HierarchyOptions options{.rank = rank_in_subset(ranks, options_.rank, size()),
                           .host_of = hosts_among(options_.host_of, ranks),
                           .overlaps = options_.overlaps,
                           .deadline = deadline};
  std::vector<int> here;  // the local ranks that are in the subset
  for (int local = 0; local < std::ssize(lanes_.host); ++local) {
    const int rank = lanes_.host[static_cast<std::size_t>(local)];
    if (std::binary_search(ranks.begin(), ranks.end(), rank)) here.push_back(local);
  }
  const auto hosts = 1 + *std::max_element(options.host_of.begin(), options.host_of.end());
  std::unique_ptr<HierarchicalBackend> made;
  guard([&] {
    std::unique_ptr<Backend> flat;
    std::unique_ptr<Backend> host;
    if (host_ && hosts == 1) {
      flat = host_->subset(here, deadline);
    } else {
      flat = flat_->subset(ranks, deadline);
      if (host_ && hosts < std::ssize(ranks)) host = host_->subset(here, deadline);
    }
    made =
        std::make_unique<HierarchicalBackend>(std::move(flat), std::move(host), std::move(options));
  });
  made->table_ = table_;
  made->whole_ = whole_;
  return made;
}

void HierarchicalBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  guard([&] {
    if (!host_ || takes_one_step(call)) return flat_->allreduce(call, deadline);
    // Each tensor's own size decides, so that its bits do not depend on the other fused tensors.
    std::map<std::pair<Algorithm, std::size_t>, std::vector<TensorSlice>> by_algorithm;
    for (const TensorSlice& tensor : call.tensors) {
      const std::size_t bytes = bytes_of(tensor.count, call.dtype);
      if (bytes > 0) by_algorithm[{table_.at(bytes), table_.segment_at(bytes)}].push_back(tensor);
    }
    AllreduceCall part = call;
    for (const auto& [choice, tensors] : by_algorithm) {
      part.tensors = tensors;
      if (choice.first == Algorithm::lanes) {
        through_lanes(part, choice.second, deadline);
      } else if (choice.first == Algorithm::leaders) {
        through_leaders(part, deadline);
      } else {
        flat_->allreduce(part, deadline);
      }
    }
  });
}

/// Every host reduces its ranks' contributions to a sum of its own; the local ranks 0, the leaders,
/// reduce the hosts' sums among themselves; each leader broadcasts the result within its host.
void HierarchicalBackend::through_leaders(const AllreduceCall& call, Deadline deadline) {
  const std::int64_t elements = total_count(call.tensors);
  std::byte* slice = slices_.reserve(bytes_of(elements, call.dtype));
  std::byte* const discarded = replacement(&TensorSlice::output, discarded_, call, elements).first;

  std::vector<TensorSlice> contributions;
  std::vector<TensorSlice> sums;
  std::vector<TensorSlice> results;
  for (const TensorSlice& tensor : call.tensors) {
    contributions.push_back({tensor.input, slice, tensor.count});
    results.push_back({slice, tensor.output ? tensor.output : discarded, tensor.count});
    // The sums are cut where lanes would be cut, so that the bits are those of `through_lanes`.
    for (int lane = 0; lane < lanes_.count; ++lane) {
      const std::int64_t count =
          lanes_.offset(tensor.count, lane + 1) - lanes_.offset(tensor.count, lane);
      sums.push_back({slice, slice, count});
      slice += bytes_of(count, call.dtype);
    }
  }
  host_->allreduce({contributions, call.device, call.dtype, without_mean(call.op), call.prescale,
                    1.0, 0, nullptr},
                   deadline);
  if (lanes_.local_rank == 0) {  // the first lane belongs to local rank 0 of each host
    across_.front()->allreduce(
        {sums, call.device, call.dtype, call.op, 1.0, call.postscale, contributors(call), nullptr},
        deadline);
  }
  host_->broadcast({results, call.device, call.dtype, 0}, deadline);
}

void HierarchicalBackend::through_lanes(const AllreduceCall& call, std::size_t segment,
                                        Deadline deadline) {
  const std::size_t bytes = segment == 0 ? kSegment : std::max(segment, kLeastSegment);
  const std::size_t most = bytes / size_of(call.dtype);
  const Stages stages(*this, call, static_cast<std::int64_t>(most), deadline);
  if (options_.overlaps && stages.size() > 1) return overlap(stages);
  for (std::size_t k = 0; k < stages.size(); ++k) {
    stages.reduce(k);
    stages.cross(k);
    stages.spread(k);
  }
}

namespace {

/// Returns the elements by rank of each tensor.
template <class Slice>
std::vector<std::span<const std::int64_t>> counts_of(std::span<const Slice> tensors) {
  std::vector<std::span<const std::int64_t>> counts;
  for (const Slice& tensor : tensors) counts.push_back(tensor.counts);
  return counts;
}

}  // namespace

/// Runs an allgather in two steps. First the ranks of each lane, one on every host, exchange their
/// parts: each then has its lane's parts of all hosts. Then the ranks of each host exchange these,
/// host by host into the outputs.
void HierarchicalBackend::gather_through_lanes(const AllgatherCall& call, Deadline deadline) {
  const auto counts = counts_of(call.tensors);
  const LaneParts parts(*even_, options_.rank, counts, call.dtype);
  std::byte* const buffer = slices_.reserve(parts.bytes());
  std::vector<GatherSlice> slices;
  for (std::size_t tensor = 0; tensor < call.tensors.size(); ++tensor) {
    slices.push_back(
        {call.tensors[tensor].input, buffer + parts.offset(tensor), parts.by_host(tensor)});
  }
  across_.front()->allgather({slices, call.device, call.dtype}, deadline);

  slices.clear();
  for (const LaneParts::Piece& piece : parts.pieces()) {
    slices.push_back({buffer + piece.in_buffer, call.tensors[piece.tensor].output + piece.in_tensor,
                      piece.counts});
  }
  host_->allgather({slices, call.device, call.dtype}, deadline);
}

/// Runs a reducescatter in two steps. First the ranks of each host reduce what they contribute to
/// the parts of a lane, for all lanes: the local rank that belongs to the lane then has the host's
/// sums for all ranks of the lane. Then the ranks of each lane reduce the hosts' sums, each its own
/// part.
void HierarchicalBackend::scatter_through_lanes(const ReducescatterCall& call, Deadline deadline) {
  const auto counts = counts_of(call.tensors);
  const LaneParts parts(*even_, options_.rank, counts, call.dtype);
  std::byte* const buffer = slices_.reserve(parts.bytes());
  std::vector<ScatterSlice> slices;
  for (const LaneParts::Piece& piece : parts.pieces()) {
    slices.push_back({moved(call.tensors[piece.tensor].input, piece.in_tensor),
                      buffer + piece.in_buffer, piece.counts});
  }
  ReducescatterCall step = call;
  step.tensors = slices;
  step.op = without_mean(call.op);
  step.postscale = 1.0;
  host_->reducescatter(step, deadline);

  std::vector<ScatterSlice> sums;
  for (std::size_t tensor = 0; tensor < call.tensors.size(); ++tensor) {
    sums.push_back(
        {buffer + parts.offset(tensor), call.tensors[tensor].output, parts.by_host(tensor)});
  }
  step = call;
  step.tensors = sums;
  step.prescale = 1.0;
  step.contributors = contributors(call);
  across_.front()->reducescatter(step, deadline);
}

/// Runs the rounds as a pipeline. In step s this thread reduces round s within the host and hands
/// it to the communication thread, which reduces it across hosts; then it waits until round s-2 is
/// reduced across hosts, and spreads that round within the host. So while round s-1 is on the
/// network this thread works on the rounds after and before it.
void HierarchicalBackend::overlap(const Stages& stages) {
  constexpr std::size_t kLag = kInFlight - 1;
  const std::size_t rounds = stages.size();
  try {
    comm_thread_.begin();
    for (std::size_t step = 0; step < rounds + kLag; ++step) {
      if (step < rounds) {
        stages.reduce(step);
        comm_thread_.post([&stages, step] { stages.cross(step); });
      }
      if (step >= kLag) {
        comm_thread_.wait_for(step - kLag + 1);
        stages.spread(step - kLag);
      }
    }
  } catch (...) {
    // The error of the thread that failed first is thrown; the other one was ended by an abort.
    const std::exception_ptr earlier = comm_thread_.cancel();
    flat_->abort();
    comm_thread_.drain();
    if (earlier) std::rethrow_exception(earlier);
    throw;
  }
}

std::unique_ptr<HierarchicalBackend> compose_hierarchy(std::unique_ptr<Backend> flat,
                                                       std::unique_ptr<Backend> host,
                                                       const Topology& topology,
                                                       Deadline deadline) {
  HierarchyOptions options{
      .rank = topology.rank, .host_of = topology.host_of, .overlaps = true, .deadline = deadline};
  const Lanes lanes = plan_lanes(topology.host_of, topology.rank);
  log(LogLevel::plan, topology.rank,
      fmt::format("several hosts: {} lanes, {} of them this rank's; {} within the host, {} across",
                  lanes.count, lanes.owners.size(), host ? host->name() : flat->name(),
                  flat->name()));
  if (!host && lanes.host.size() == 1) {
    host = make_ring_backend(std::move(make_in_process_transports(1).front()));
  } else if (!host) {
    host = flat->subset(lanes.host, deadline);  // it shares flat's connections, so no overlap
    options.overlaps = false;
  }
  return std::make_unique<HierarchicalBackend>(std::move(flat), std::move(host),
                                               std::move(options));
}

}  // namespace hvd::detail

namespace hvd {

std::unique_ptr<Backend> make_hierarchical_backend(std::unique_ptr<Backend> flat,
                                                   std::unique_ptr<Backend> host,
                                                   const Topology& topology, Deadline deadline) {
  return detail::compose_hierarchy(std::move(flat), std::move(host), topology, deadline);
}

}  // namespace hvd
