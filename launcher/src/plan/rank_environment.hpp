// Computes the environment of a rank, as docs/reference/environment.md specifies it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.hpp"
#include "plan/plan.hpp"

namespace hvd::launcher {

/// Entries of the form "NAME=value".
using Variables = std::vector<std::string>;

/// The values that all ranks of a job have in common.
struct JobIdentity {
  std::string id;
  std::uint32_t restart_count = 0;
  std::string store;        ///< address of the job's store
  std::string master_host;  ///< for programs that read torch's names
  std::uint16_t master_port = 0;
};

/// Returns the variables that differ between ranks. The agent adds HVD_SECRET_FD, and
/// OMP_NUM_THREADS where it is not set.
[[nodiscard]] Variables rank_variables(const Placement& placement, const Plan& plan);
[[nodiscard]] Variables job_variables(const JobIdentity& job);

/// Returns the variables that make NCCL, MPI and Gloo use `interface`.
[[nodiscard]] Variables interface_variables(const std::string& interface);

/// Merges two lists. Values of `later` override those of `earlier`. Each name appears once, in the
/// order of first appearance.
[[nodiscard]] Variables merge(const Variables& earlier, const Variables& later);

/// Returns the value, or an empty text when the variable is not set.
[[nodiscard]] std::string_view value_of(const Variables& variables, std::string_view name);
[[nodiscard]] bool contains(const Variables& variables, std::string_view name);

/// Returns the environment that ranks on this machine inherit from hvdrun, without the secret and
/// the worker of an outer job.
[[nodiscard]] Variables inherited_variables(const Variables& own);

/// The part of hvdrun's environment that all hosts of a job on several machines get. A name in
/// `exports` is never withheld.
struct Forwarding {
  Variables variables;
  std::vector<std::string> withheld;  ///< names of secrets that were left out
};
/// Omits secrets (LD_PRELOAD, HVD_SECRET_FD, names with TOKEN, SECRET, KEY or PASSWORD), variables
/// of this machine or login (CUDA_VISIBLE_DEVICES, HOME, SSH_*, ...) and shell functions.
[[nodiscard]] Forwarding forwarded_variables(const Variables& own,
                                             const std::vector<ExportSpec>& exports);
/// Returns the environment of ranks on hvdrun's own machine in such a job, which has all variables
/// but the withheld secrets.
[[nodiscard]] Variables without(const Variables& variables, const std::vector<std::string>& names);

/// Returns the variables of the -x options, the last of each name. A variable without a value gets
/// that in `own`. They override everything but a rank's identity.
[[nodiscard]] Variables exported_variables(const std::vector<ExportSpec>& exports,
                                           const Variables& own);

}  // namespace hvd::launcher
