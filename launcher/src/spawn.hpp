// Starts one program as a child.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "descriptor_limit.hpp"

namespace hvd::launcher {

struct SpawnRequest {
  std::string path;                    ///< of the file to execute
  std::vector<std::string> arguments;  ///< with the program's name first
  std::vector<std::string> variables;  ///< its whole environment
  int input = -1;                      ///< become its descriptors 0, 1 and 2
  int output = -1;
  int error = -1;
  bool new_session = false;  ///< else, with `own_group`, a process group of its own in this session
  bool own_group = true;
  std::vector<int> inherited{};  ///< descriptors it gets under the same number
  bool die_with_parent = false;
  const DescriptorLimit* limit = nullptr;  ///< to be undone in the child; may be null
};

/// Signals ignored here stay ignored there, but for SIGPIPE; handlers and masks do not pass on.
/// Returns once the program has been executed. Throws LaunchError: 71 when the system refuses a
/// process, 126 or 127 when it refuses the file. Only from the thread that outlives the child,
/// since `die_with_parent` means that thread.
[[nodiscard]] pid_t spawn(const SpawnRequest& request);

}  // namespace hvd::launcher
