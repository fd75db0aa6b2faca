// Texts made from the list of options, so that they cannot differ from it. Pure.
#pragma once

#include <string>
#include <vector>

#include "options.hpp"

namespace hvd::launcher {

/// A bash completion: options of hvdrun, their values, then programs and files.
[[nodiscard]] std::string bash_completion(const std::vector<OptionInfo>& options);

/// A page in man(7)'s macros. `version` is that of hvd.
[[nodiscard]] std::string man_page(const std::vector<OptionInfo>& options,
                                   const std::string& version);

}  // namespace hvd::launcher
