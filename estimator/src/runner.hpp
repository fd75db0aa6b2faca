// Processes of this program as ranks, and what they hand back.
#pragma once

#include <hvd/core/wire.hpp>
#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/model.hpp>
#include <hvd/spawn.hpp>

namespace hvd {

/// Throws Errc::invalid_argument when this machine is not for so many processes.
void require_slots(int processes, const RunnerOptions& runner);

/// Where the ranks' lines go. Opens files: not for a process that is itself on its way to the call.
/// Throws Errc::resource.
[[nodiscard]] SpawnOptions spawn_options(const RunnerOptions& runner);

/// A model as one process hands it to another, with its summary.
[[nodiscard]] Bytes pack(const Model& model);
[[nodiscard]] Model unpack(const Bytes& bytes, const Trainable& module);

}  // namespace hvd
