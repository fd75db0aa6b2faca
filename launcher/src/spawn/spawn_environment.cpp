#include "spawn/spawn_environment.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/secret.hpp>

#include "plan/cpus.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

constexpr int kMostProcesses = 65'536;

void check(int nprocs, const SpawnOptions& options) {
  const auto refuse = [](const std::string& why) { throw Error(Errc::invalid_argument, why); };
  if (nprocs < 1 || nprocs > kMostProcesses) {
    refuse(fmt::format("hvd::spawn: {} processes; expected 1 or more", nprocs));
  }
  if (options.nodes < 1 || options.nodes > kMostProcesses / nprocs) {
    refuse(fmt::format("hvd::spawn: {} nodes; expected 1 or more", options.nodes));
  }
  if (options.node_rank < 0 || options.node_rank >= options.nodes) {
    refuse(fmt::format("hvd::spawn: node rank {} of {}", options.node_rank, options.nodes));
  }
  if (options.nodes > 1 && options.address.empty()) {
    refuse(fmt::format("hvd::spawn: {} nodes, but no address to meet at", options.nodes));
  }
}

Plan make_plan(int nprocs, int nodes) {
  const HostSpec node{.name = "node", .slots = nprocs};
  return plan_ranks(std::vector<HostSpec>(static_cast<std::size_t>(nodes), node), nprocs * nodes);
}

}  // namespace

SpawnEnvironment::SpawnEnvironment(int nprocs, const SpawnOptions& options, std::size_t call) {
  check(nprocs, options);
  plan_ = make_plan(nprocs, options.nodes);
  first_rank_ = nprocs * options.node_rank;
  common_ = inherited_variables(own_environment());
  if (!contains(common_, "OMP_NUM_THREADS")) {
    common_.push_back(fmt::format("OMP_NUM_THREADS={}", omp_threads(nprocs)));
  }
  if (options.nodes == 1) {
    meet_here(random_job_id());
  } else {
    meet_at_node_0(options, fmt::format("hvd-spawn-{}", call));
  }
  if (secret_) common_ = merge(common_, {fmt::format("HVD_SECRET_FD={}", secret_.get())});
}

void SpawnEnvironment::meet_here(const std::string& job) {
  const Secret secret = Secret::random();
  rendezvous_.emplace(Rendezvous::Options{.job_id = job, .secret = secret});
  secret_ = secret.to_inheritable_fd();
  common_ = merge(common_, job_variables({.id = job,
                                          .restart_count = 0,
                                          .store = rendezvous_->store(),
                                          .master_host = rendezvous_->host(),
                                          .master_port = rendezvous_->port()}));
}

void SpawnEnvironment::meet_at_node_0(const SpawnOptions& options, const std::string& job) {
  const Address at = Address::parse(fmt::format("tcp:{}", options.address));
  Secret secret;
  const std::string file(value_of(own_environment(), "HVD_SECRET_FILE"));
  if (!file.empty()) {
    secret = Secret::from_file(file);
  } else if (!is_loopback(at.host)) {
    throw Error(Errc::unauthenticated,
                fmt::format("hvd::spawn: the nodes meet at {} and share no secret; put 32 random "
                            "bytes into a file of mode 0600 and name it in HVD_SECRET_FILE on "
                            "every node",
                            options.address));
  }
  const std::string store = is_loopback(at.host)
                                ? fmt::format("unix:@hvd-spawn-{}-{}", at.host, at.port)
                                : at.to_string();
  if (options.node_rank == 0) {
    loop_ = std::make_unique<EventLoop>();
    store_ = std::make_unique<StoreServer>(
        *loop_, store, Identity{.job_id = job, .epoch = 0, .rank = -1, .secret = secret});
  }
  if (!secret.empty()) secret_ = secret.to_inheritable_fd();
  common_ = merge(common_, {fmt::format("HVD_JOB_ID={}", job), "HVD_RESTART_COUNT=0",
                            fmt::format("HVD_STORE={}", store)});
}

Variables SpawnEnvironment::variables(int local_rank) const {
  const auto rank = static_cast<std::size_t>(first_rank_ + local_rank);
  return merge(common_, rank_variables(plan_.ranks.at(rank), plan_));
}

}  // namespace hvd::launcher
