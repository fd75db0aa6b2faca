#include "coordinator/coordinator.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/log.hpp>

namespace hvd {
namespace {

// One batch runs while the next is agreed on; what becomes ready meanwhile is fused.
constexpr std::size_t kBatchesInFlight = 2;

// Rank 0 collects evidence for this long before it believes a victim; the others give rank 0 time
// to do so and to tell them.
constexpr std::chrono::milliseconds kSettleLeader{200};
constexpr std::chrono::milliseconds kSettleFollower{1'000};

FaultDetector::Settings detector_settings(const Config& config, bool leads) {
  const Clock::duration settle = leads ? kSettleLeader : kSettleFollower;
  return {config.heartbeat_interval, config.peer_timeout, settle};
}

}  // namespace

Coordinator::Coordinator(Session& session, std::unique_ptr<ControlChannel> channel,
                         std::vector<std::unique_ptr<Backend>> backends)
    : session_(session),
      rank_(session.topology().rank),
      size_(session.topology().size),
      began_(Clock::now()),
      channel_(std::move(channel)),
      negotiator_(size_, session.config().fusion_threshold),
      detector_(detector_settings(session.config(), leads()), began_),
      stalls_reported_(began_),
      timer_(session.loop(), session.config().heartbeat_interval, [this] { on_tick(); }),
      executor_(std::move(backends), session.config().collective_timeout, counters_,
                {[this](PendingTensor& tensor, std::exception_ptr error) {
                   tensor_done(tensor, std::move(error));
                 },
                 [this] { session_.loop().post([this] { batch_done(); }); },
                 [this](const Error& error) {
                   session_.loop().post([this, code = error.code(), fault = error.fault()] {
                     suspect(code, fault.rank, fault.cause);
                   });
                 },
                 [this] { fail_pending(); }}) {
  session_.loop().run_sync([this] {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && (leads() || peer == 0)) detector_.watch(peer, Clock::now());
    }
    if (channel_) channel_->start(*this);
    timer_.start();
  });
}

Coordinator::~Coordinator() { disconnect(); }

void Coordinator::disconnect() noexcept {
  const std::lock_guard once(shutdown_mutex_);
  shut_down_ = true;
  session_.network().abort();
  table_.close(std::make_exception_ptr(Error(Errc::shut_down, "this rank has shut down")));
  executor_.stop();
  executor_.join();
  // Behind everything that the executor has posted.
  session_.loop().run_sync([this] {
    timer_.stop();
    if (channel_) channel_->close();
  });
}

Work Coordinator::submit(Submission submission) {
  if (!executor_.supports(submission.request)) {
    const Request& request = submission.request;
    throw Error(
        Errc::unsupported,
        fmt::format("no backend runs {} '{}' ({} {}, {})", to_string(request.kind), request.name,
                    to_string(request.dtype), to_string(request.op), to_string(request.device)));
  }
  auto tensor = std::make_shared<PendingTensor>();
  tensor->submission = std::move(submission);
  tensor->since = Clock::now();
  Work work(tensor->work);
  if (table_.add(std::move(tensor))) session_.loop().post([this] { announce(); });
  ++counters_.submitted;
  return work;
}

void Coordinator::announce() {
  std::vector<Request> requests = table_.take_unannounced();
  if (requests.empty()) return;
  if (leads()) {
    negotiator_.submitted(rank_, std::move(requests), Clock::now());
    pump();
  } else {
    send(0, Submitted{std::move(requests)});
  }
}

void Coordinator::pump() {
  const std::size_t free = kBatchesInFlight - std::min(kBatchesInFlight, in_flight_);
  if (auto decisions = negotiator_.take(free); !decisions.empty()) {
    const Schedule schedule{std::move(decisions)};
    send_to_all(schedule);
    for (const Decision& decision : schedule.decisions) {
      std::visit([this](const auto& it) { carry_out(it); }, decision);
    }
  }
  if (negotiator_.finished()) {
    send_to_all(Farewell{});
    handle(rank_, Farewell{});
  }
}

void Coordinator::carry_out(const Batch& batch) {
  TensorBatch tensors{{}, batch.first_dimensions};
  for (const std::string& name : batch.names) {
    auto tensor = table_.find(name);
    if (!tensor) {
      // Only after `fail_pending`, or when rank 0 has lost its mind.
      suspect(Errc::protocol, 0, fmt::format("'{}' was scheduled but is not pending", name));
      return;
    }
    table_.mark_scheduled(*tensor);
    tensors.tensors.push_back(std::move(tensor));
  }
  ++in_flight_;
  executor_.run(std::move(tensors));
}

void Coordinator::carry_out(const Rejection& rejection) {
  if (const auto tensor = table_.find(rejection.name)) {
    tensor_done(*tensor, std::make_exception_ptr(Error(rejection.code, rejection.message)));
  }
}

void Coordinator::batch_done() {
  --in_flight_;
  if (leads()) pump();
}

void Coordinator::tensor_done(PendingTensor& tensor, std::exception_ptr error) {
  table_.remove(tensor.submission.request.name);
  tensor.submission.keep_alive.reset();
  ++(error ? counters_.failed : counters_.completed);
  tensor.work->complete(std::move(error));
}

void Coordinator::on_message(int from, std::span<const std::byte> bytes) {
  if (end_ == End::poisoned) return;
  const Clock::time_point now = Clock::now();
  detector_.heard(from, now);
  try {
    Message message = decode_message(bytes);
    std::visit([this, from](auto& it) { handle(from, it); }, message);
  } catch (const Error& error) {
    detector_.lost(from, error.what(), now);
    judge(now);
  }
}

void Coordinator::on_lost(int peer, const std::string& cause) {
  const Clock::time_point now = Clock::now();
  detector_.lost(peer, cause, now);
  judge(now);
}

namespace {

void expect(bool condition, std::string_view what) {
  if (!condition) throw Error(Errc::protocol, fmt::format("unexpected message: {}", what));
}

}  // namespace

void Coordinator::handle(int from, Submitted& message) {
  expect(leads(), "submitted");
  ++counters_.control_messages_received;
  negotiator_.submitted(from, std::move(message.requests), Clock::now());
  pump();
}

void Coordinator::handle(int from, const Goodbye&) {
  expect(leads(), "goodbye");
  negotiator_.departed(from);
  pump();
}

void Coordinator::handle(int, const Suspicion& message) {
  expect(leads(), "suspicion");
  suspect(message.code, message.rank, message.cause);
}

void Coordinator::handle(int from, Schedule& message) {
  expect(from == 0 && !leads(), "schedule");
  ++counters_.control_messages_received;
  for (const Decision& decision : message.decisions) {
    std::visit([this](const auto& it) { carry_out(it); }, decision);
  }
}

void Coordinator::handle(int from, const Farewell&) {
  expect(from == 0, "farewell");
  for (int peer = 0; peer < size_; ++peer) detector_.unwatch(peer);
  executor_.drain();
  end(End::farewell);
}

void Coordinator::handle(int from, const Poison& message) {
  expect(from == 0 && !leads(), "poison");
  poison(message.code, message.fault);
}

void Coordinator::handle(int, const Heartbeat&) {}

void Coordinator::on_tick() {
  const Clock::time_point now = Clock::now();
  if (leads()) {
    send_to_all(Heartbeat{});
    report_stalls(now);
  } else {
    send(0, Heartbeat{});
  }
  judge(now);
}

void Coordinator::report_stalls(Clock::time_point now) {
  const Config& config = session_.config();
  if (config.stall_warn.count() > 0 && now - stalls_reported_ >= config.stall_warn) {
    stalls_reported_ = now;
    for (const Stall& stall : negotiator_.stalls(now, config.stall_warn)) {
      log(LogLevel::warn, rank_,
          fmt::format("{} '{}' has waited {} s for rank {}; submitted by rank {}",
                      to_string(stall.kind), stall.name,
                      std::chrono::duration_cast<std::chrono::seconds>(stall.age).count(),
                      fmt::join(stall.missing, ", "), fmt::join(stall.submitted, ", ")));
    }
  }
  if (config.stall_abort.count() > 0) {
    const std::vector<Stall> stalls = negotiator_.stalls(now, config.stall_abort);
    if (!stalls.empty()) {
      const Stall& stall = stalls.front();
      suspect(Errc::timeout, stall.missing.front(),
              fmt::format("did not submit {} '{}', for which rank {} waited {} s",
                          to_string(stall.kind), stall.name, fmt::join(stall.submitted, ", "),
                          std::chrono::duration_cast<std::chrono::seconds>(stall.age).count()));
    }
  }
}

void Coordinator::suspect(Errc code, int rank, const std::string& cause) {
  const Clock::time_point now = Clock::now();
  if (leads() && code == Errc::aborted && rank >= 0) {
    detector_.aborted(rank, cause, now);
  } else {
    detector_.suspected(rank, code, cause, now);
    if (!leads()) send(0, Suspicion{code, rank, cause});
  }
  judge(now);
}

void Coordinator::judge(Clock::time_point now) {
  if (end_ == End::poisoned) return;
  const std::optional<Verdict> verdict = detector_.tick(now);
  if (!verdict) return;
  const Fault fault = describe(*verdict, now);
  if (leads()) send_to_all(Poison{verdict->code, fault});
  poison(verdict->code, fault);
}

Fault Coordinator::describe(const Verdict& verdict, Clock::time_point now) const {
  Fault fault;
  fault.rank = verdict.rank;
  if (verdict.rank >= 0 && verdict.rank < size_) {
    fault.host = session_.topology().hostnames[static_cast<std::size_t>(verdict.rank)];
  }
  fault.cause = verdict.cause;
  Clock::time_point since = began_;
  if (const auto oldest = table_.oldest()) {
    fault.phase = oldest->scheduled ? to_string(oldest->kind) : "negotiation";
    fault.tensor = oldest->name;
    since = oldest->since;
  }
  fault.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
  return fault;
}

void Coordinator::poison(Errc code, const Fault& fault) {
  if (end_ == End::poisoned) return;
  const Error error(code, fault);
  log(LogLevel::info, rank_, error.what());
  {
    const std::lock_guard lock(end_mutex_);
    error_ = std::make_exception_ptr(error);
  }
  table_.close(error_);
  session_.network().abort();
  executor_.stop();  // its last act is `fail_pending`
  end(End::poisoned);
}

void Coordinator::fail_pending() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(end_mutex_);
    error = error_;
  }
  if (!error) error = std::make_exception_ptr(Error(Errc::shut_down, "this rank has shut down"));
  for (const auto& tensor : table_.take_all()) tensor_done(*tensor, error);
}

void Coordinator::end(End how) {
  const std::lock_guard lock(end_mutex_);
  end_ = how;
  ended_.notify_all();
}

void Coordinator::abort(const std::string& reason) noexcept {
  session_.loop().post([this, reason] { suspect(Errc::aborted, rank_, reason); });
}

void Coordinator::shutdown() {
  const std::lock_guard once(shutdown_mutex_);
  if (std::exchange(shut_down_, true)) return;
  table_.close(std::make_exception_ptr(Error(Errc::shut_down, "this rank has shut down")));
  session_.loop().post([this] {
    announce();  // what was submitted before the goodbye goes before it
    if (leads()) {
      negotiator_.departed(rank_);
      pump();
    } else {
      send(0, Goodbye{});
    }
  });
  std::unique_lock lock(end_mutex_);
  const Deadline deadline = Clock::now() + session_.config().shutdown_timeout;
  if (!ended_.wait_until(lock, deadline, [this] { return end_ != End::none; })) {
    throw Error(Errc::timeout, Fault{-1, "", "not every rank has shut down", "shutdown", "",
                                     session_.config().shutdown_timeout});
  }
  lock.unlock();
  executor_.join();
  lock.lock();
  if (end_ == End::poisoned) std::rethrow_exception(error_);
}

void Coordinator::send(int to, const Message& message) {
  send_encoded(to, message, encode(message));
}

void Coordinator::send_to_all(const Message& message) {
  if (!channel_) return;
  const Bytes bytes = encode(message);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) send_encoded(peer, message, bytes);
  }
}

void Coordinator::send_encoded(int to, const Message& message, Bytes bytes) {
  if (!channel_) return;
  if (std::holds_alternative<Submitted>(message) || std::holds_alternative<Schedule>(message)) {
    ++counters_.control_messages_sent;
  }
  channel_->send(to, std::move(bytes));
}

}  // namespace hvd
