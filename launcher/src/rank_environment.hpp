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

/// The variables of one rank; the agent adds HVD_SECRET_FD, and OMP_NUM_THREADS where it is not
/// set.
[[nodiscard]] Variables rank_variables(const Placement& placement, const Plan& plan,
                                       const JobIdentity& job);

/// `later` wins. One entry per name, in the order of first appearance.
[[nodiscard]] Variables merge(const Variables& earlier, const Variables& later);

/// Empty when it is not set.
[[nodiscard]] std::string_view value_of(const Variables& variables, std::string_view name);
[[nodiscard]] bool contains(const Variables& variables, std::string_view name);

/// hvdrun's own environment as the ranks of this host inherit it: without an outer job's secret.
[[nodiscard]] Variables inherited_variables(const Variables& own);

/// The -x options that name a value; they win over all but the identity of a rank.
[[nodiscard]] Variables exported_variables(const std::vector<ExportSpec>& exports);

}  // namespace hvd::launcher
