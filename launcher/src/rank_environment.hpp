// What a rank finds in its environment. docs/environment.md is the contract.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "options.hpp"
#include "plan.hpp"

namespace hvd::launcher {

/// "NAME=value" each.
using Variables = std::vector<std::string>;

/// What all ranks of a job have in common.
struct JobIdentity {
  std::string id;
  std::uint32_t restart_count = 0;
  std::string store;        ///< address of the job's store
  std::string master_host;  ///< for programs that read torch's names
  std::uint16_t master_port = 0;
};

/// What one rank alone has; the agent adds HVD_SECRET_FD, and OMP_NUM_THREADS where it is not set.
[[nodiscard]] Variables rank_variables(const Placement& placement, const Plan& plan);
[[nodiscard]] Variables job_variables(const JobIdentity& job);

/// What makes the libraries that a rank may use beside hvd, NCCL, MPI and Gloo, take `interface`.
[[nodiscard]] Variables interface_variables(const std::string& interface);

/// `later` wins. One entry per name, in the order of first appearance.
[[nodiscard]] Variables merge(const Variables& earlier, const Variables& later);

/// Empty when it is not set.
[[nodiscard]] std::string_view value_of(const Variables& variables, std::string_view name);
[[nodiscard]] bool contains(const Variables& variables, std::string_view name);

/// The environment that the ranks of this machine inherit from hvdrun: without an outer job's
/// secret.
[[nodiscard]] Variables inherited_variables(const Variables& own);

/// What of hvdrun's environment a job on several machines gets everywhere; of the names withheld,
/// those in `exports` are let through.
struct Forwarding {
  Variables variables;
  std::vector<std::string> withheld;  ///< names of secrets that were left out
};
/// Left out are secrets (LD_PRELOAD, names with TOKEN, SECRET or KEY), what means this machine or
/// this login only (CUDA_VISIBLE_DEVICES, HOME, SSH_*, ...) and shell functions.
[[nodiscard]] Forwarding forwarded_variables(const Variables& own,
                                             const std::vector<ExportSpec>& exports);
/// The ranks on hvdrun's own machine in such a job: all but the secrets that are withheld.
[[nodiscard]] Variables without(const Variables& variables, const std::vector<std::string>& names);

/// The -x options, with values from `own` where they name none; they win over all but the identity
/// of a rank.
[[nodiscard]] Variables exported_variables(const std::vector<ExportSpec>& exports,
                                           const Variables& own);

}  // namespace hvd::launcher
