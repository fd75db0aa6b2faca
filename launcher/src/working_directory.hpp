// The directory hvdrun was started in, as its user knows it.
#pragma once

#include <string>

#include "rank_environment.hpp"

namespace hvd::launcher {

/// PWD from `own` when it leads to the working directory, since other hosts may reach it under that
/// name only (/home/me, mounted here as /export/home/me); else the kernel's name for it. Throws
/// LaunchError (71) when it is gone.
[[nodiscard]] std::string working_directory(const Variables& own);

}  // namespace hvd::launcher
