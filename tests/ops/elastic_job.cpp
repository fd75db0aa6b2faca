#include "elastic_job.hpp"

#include <array>
#include <csignal>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

namespace hvd::test {
namespace {

constexpr std::chrono::minutes kPatience{1};
constexpr const char* kJob = "elastic-test";

}  // namespace

ElasticJob::ElasticJob(std::string program, std::vector<std::string> arguments,
                       std::map<std::string, std::optional<std::string>> environment)
    : program_(std::move(program)),
      arguments_(std::move(arguments)),
      environment_(std::move(environment)) {}

void ElasticJob::start(int count) {
  for (int i = 0; i < count; ++i) {
    const int worker = static_cast<int>(processes_.size());
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw std::runtime_error("socketpair");
    }
    sockets_[worker].reset(ends[0]);
    const UniqueFd of_worker(ends[1]);
    ProcessOptions options;
    options.arguments = {program_};
    options.arguments.insert(options.arguments.end(), arguments_.begin(), arguments_.end());
    options.environment = environment_;
    options.environment["TEST_WORKER"] = std::to_string(worker);
    options.environment["HVD_ELASTIC_FD"] = std::to_string(ends[1]);
    options.inherited = {ends[1]};
    processes_[worker] = std::make_unique<Process>(std::move(options));
  }
}

detail::Waits ElasticJob::waits(int worker) {
  pollfd readable{.fd = sockets_.at(worker).get(), .events = POLLIN, .revents = 0};
  Bytes bytes(detail::kMaxElasticMessage + 1);
  ssize_t size = -1;
  if (poll_until({&readable, 1}, in(kPatience))) {
    size = ::recv(readable.fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
  }
  if (size <= 0) {
    const std::string why = size < 0 ? "says nothing" : "has ended: " + end(worker).out;
    throw std::runtime_error(fmt::format("worker {} {}", worker, why));
  }
  bytes.resize(static_cast<std::size_t>(size));
  return detail::decode_waits(bytes);
}

void ElasticJob::all_wait(const std::vector<int>& workers) {
  for (const int worker : workers) {
    const detail::Waits said = waits(worker);
    if (said.blames >= 0) {
      throw std::runtime_error(fmt::format("worker {} blames rank {}", worker, said.blames));
    }
  }
}

std::uint32_t ElasticJob::form(const std::vector<int>& workers) {
  ++generation_;
  store_ = std::make_unique<StoreServer>(
      loop_, "unix:@", Identity{.job_id = kJob, .epoch = generation_, .rank = -1, .secret = {}});
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    detail::Assignment assignment{generation_, {}};
    for (const char* part : {"", "LOCAL_"}) {
      assignment.variables.push_back(fmt::format("HVD_{}RANK={}", part, rank));
      assignment.variables.push_back(fmt::format("HVD_{}SIZE={}", part, workers.size()));
    }
    assignment.variables.push_back(fmt::format("HVD_JOB_ID={}", kJob));
    assignment.variables.push_back(fmt::format("HVD_STORE={}", store_->address()));
    assignment.variables.push_back(fmt::format("HVD_RESTART_COUNT={}", generation_));
    send(workers[rank], assignment);
  }
  return generation_;
}

void ElasticJob::send(int worker, const detail::ElasticOrder& order) const {
  const Bytes bytes = encode(order);
  if (::send(sockets_.at(worker).get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) {
    throw std::runtime_error(fmt::format("worker {} has ended", worker));
  }
}

void ElasticJob::send(const std::vector<int>& workers, const detail::ElasticOrder& order) const {
  for (const int worker : workers) send(worker, order);
}

ProcessResult ElasticJob::end(int worker) { return process(worker).wait(in(kPatience)); }

void ElasticJob::kill(int worker) {
  process(worker).signal(SIGKILL);
  static_cast<void>(end(worker));
}

}  // namespace hvd::test
