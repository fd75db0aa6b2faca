// Everything but a rank's place: `HVD_*`, and `HOROVOD_*` where it means the same.
#pragma once

#include <hvd/core/config.hpp>

#include "config_reader.hpp"

namespace hvd {

/// Throws Errc::invalid_argument naming the variable and its value.
void read_tuning(const VariableReader& read, Config& config);

}  // namespace hvd
