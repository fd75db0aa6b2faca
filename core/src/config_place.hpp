// Which of several sets of variables tells a rank's place: docs/environment.md, "Who is believed".
#pragma once

#include <hvd/core/config.hpp>

#include "config_parse.hpp"
#include "config_reader.hpp"

namespace hvd {

/// Rank, size, job and rendezvous of `config`. Throws Errc::invalid_argument naming the variable
/// and its value.
void read_place(const VariableReader& read, const Surroundings& ask, Config& config);

}  // namespace hvd
