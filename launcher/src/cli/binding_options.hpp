// Parses --bind-to and --map-by.
#pragma once

#include "plan/binding.hpp"

namespace CLI {
class App;
}

namespace hvd::launcher {

/// Adds both options to `app`. A wrong value is a CLI::ValidationError that says what is expected.
void add_binding_options(CLI::App& app, BindingOptions& to);

}  // namespace hvd::launcher
