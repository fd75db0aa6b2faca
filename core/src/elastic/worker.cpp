#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/internal/elastic_worker.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/poll.hpp>

#include "base/launcher_socket.hpp"
#include "base/stop_signals.hpp"
#include "config/environment.hpp"
#include "config/variable_reader.hpp"
#include "policy/fault_detector.hpp"

namespace hvd::detail {
namespace {

constexpr std::string_view kSocketVariable = "HVD_ELASTIC_FD";

// How often a worker that waits looks whether it was asked to leave. A signal handler that only
// sets a flag cannot wake it.
constexpr std::chrono::milliseconds kLook{50};

// After a signal a worker waits for hvdrun's `Stop` for so long, because a scheduler that ends a
// job may signal workers and agents a moment before hvdrun.
constexpr std::chrono::milliseconds kSameRequest{500};

UniqueFd inherited_socket() {
  const Lookup lookup = environment_variable;
  const auto fd = VariableReader(lookup).integer(kSocketVariable);
  if (!fd) return {};
  // Without hvdrun's decisions each worker would take itself for a job of one rank.
  if (!is_launcher_socket(*fd)) {
    reject_variable(
        kSocketVariable, std::to_string(*fd),
        "expected hvdrun's socket; a program between hvdrun and this one has closed it");
  }
  // Programs that this process starts are other workers, or none.
  close_on_exec(*fd);
  return UniqueFd(*fd);
}

[[noreturn]] void refuse(std::string_view why) {
  throw Error(Errc::protocol, fmt::format("hvdrun breaks the protocol of elastic jobs: {}", why));
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Config config_of(const Assignment& assignment) {
  std::map<std::string_view, std::string_view> given;
  for (const std::string_view variable : assignment.variables) {
    const std::size_t equals = variable.find('=');
    given[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  for (const std::string_view name : {"HVD_RANK", "HVD_SIZE", "HVD_STORE", "HVD_JOB_ID"}) {
    if (!given.contains(name)) refuse(fmt::format("an assignment without {}", name));
  }
  const Config config = parse_config([&](std::string_view name) {
    const auto found = given.find(name);
    return found == given.end() ? environment_variable(name)
                                : std::optional<std::string>(found->second);
  });
  if (config.epoch != assignment.generation) {
    refuse(fmt::format("HVD_RESTART_COUNT is {} in generation {}", config.epoch,
                       assignment.generation));
  }
  return config;
}

}  // namespace

ElasticWorker* ElasticWorker::of_process() {
  static const std::unique_ptr<ElasticWorker> worker = [] {
    UniqueFd socket = inherited_socket();
    return socket ? std::make_unique<ElasticWorker>(std::move(socket)) : nullptr;
  }();
  return worker.get();
}

std::optional<Config> ElasticWorker::next_generation(const Error* reason) {
  Waits waits = waits_after(reason);
  for (bool told = false;;) {
    const bool leaves = process_was_asked_to_stop();
    if (!told || leaves != waits.leaves) {
      waits.leaves = leaves;
      tell(waits);
      told = true;
    }
    const std::optional<ElasticOrder> order = receive(Clock::now() + kLook);
    if (closed_) throw Error(Errc::aborted, "hvdrun has ended, so there is no next generation");
    if (order && std::holds_alternative<Leave>(*order)) return std::nullopt;
    const auto* const assignment = order ? std::get_if<Assignment>(&*order) : nullptr;
    if (assignment != nullptr) return take(*assignment);  // others are of the last generation
  }
}

ElasticWorker::Wish ElasticWorker::wish() {
  watch_stop_signals();
  const std::lock_guard lock(mutex_);
  // hvdrun sends `Stop` before its signal. A signal of a scheduler may come before that `Stop`.
  const bool asked = process_was_asked_to_stop();
  const bool awaits_stop = asked && !std::exchange(was_asked_, asked);
  const Deadline deadline =
      Clock::now() + (awaits_stop ? kSameRequest : std::chrono::milliseconds{0});
  while (const std::optional<ElasticOrder> order =
             receive(stop_announced_ ? Clock::now() : deadline)) {
    if (std::holds_alternative<Stop>(*order)) {
      stop_announced_ = true;
    } else if (std::holds_alternative<Change>(*order)) {
      change_ordered_ = true;
    } else {
      refuse("an answer to a worker that does not wait");
    }
  }
  return {.change = change_ordered_ || asked, .stop = stop_announced_ && asked};
}

Waits ElasticWorker::waits_after(const Error* reason) const {
  Waits waits{.generation = generation_, .start_failed = generation_ > 0 && !has_state_};
  // An error of another context of this process may name a rank that this one does not have.
  if (reason == nullptr || reason->fault().rank == rank_ || reason->fault().rank < 0 ||
      reason->fault().rank >= size_) {
    return waits;
  }
  waits.blames = reason->fault().rank;
  waits.blamed_left = has_left(reason->code(), reason->fault().cause);
  return waits;
}

void ElasticWorker::tell(const Waits& waits) {
  const Bytes bytes = encode(waits);
  while (!closed_ && ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) {
    std::array<pollfd, 1> writable{{{.fd = socket_.get(), .events = POLLOUT, .revents = 0}}};
    if (would_block()) {
      static_cast<void>(poll_until(writable, Deadline::max()));
    } else {
      closed_ = true;
    }
  }
}

/// Returns nothing at the deadline, and when hvdrun has closed the socket.
std::optional<ElasticOrder> ElasticWorker::receive(Deadline deadline) {
  std::array<pollfd, 1> readable{{{.fd = socket_.get(), .events = POLLIN, .revents = 0}}};
  if (closed_ || !poll_until(readable, deadline)) return std::nullopt;
  Bytes bytes(kMaxElasticMessage + 1);
  const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < 0 && would_block()) return std::nullopt;
  closed_ = size <= 0;
  if (closed_) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(size));
  return decode_elastic_order(bytes);
}

Config ElasticWorker::take(const Assignment& assignment) {
  if (assignment.generation <= generation_) {
    refuse(fmt::format("generation {} after {}", assignment.generation, generation_));
  }
  Config config = config_of(assignment);
  config.interrupt_fd = socket_.get();
  generation_ = assignment.generation;
  rank_ = config.rank;
  size_ = config.size;
  change_ordered_ = false;
  stop_announced_ = false;
  has_state_ = false;
  return config;
}

}  // namespace hvd::detail
