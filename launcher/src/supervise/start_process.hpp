// Finds a program the way a shell does, and starts it as a child.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "plan/cpu_list.hpp"

namespace hvd::launcher {

/// Returns the path of a program. A name with a slash is taken as it is. Other names are searched
/// for along `search_path` ("" means the working directory, as in a shell). Throws LaunchError: 127
/// when the file is not found, 126 when it is not executable.
[[nodiscard]] std::string find_program(const std::string& name, std::string_view search_path);

struct StartRequest {
  std::string path;                    ///< of the file to execute
  std::vector<std::string> arguments;  ///< with the program's name first
  std::vector<std::string> variables;  ///< its whole environment
  int input = -1;                      ///< becomes its descriptor 0, the next two 1 and 2
  int output = -1;
  int error = -1;
  bool new_session = false;  ///< otherwise, with `own_group`, a new process group in this session
  bool own_group = true;
  std::vector<int> inherited{};  ///< descriptors it gets under the same number
  bool die_with_parent = false;
  Cpus cpus{};  ///< on which its threads may run; empty: where those of this process may run
};

/// Starts a process and returns its pid once the program has been executed. The child ignores the
/// signals that this process ignores, except SIGPIPE. It inherits neither handlers nor the signal
/// mask. Throws LaunchError: 71 when the system refuses a process, 126 or 127 when it refuses the
/// file. With `die_with_parent` the child gets that signal when the calling thread ends, so the
/// thread must live long.
[[nodiscard]] pid_t start_process(const StartRequest& request);

}  // namespace hvd::launcher
