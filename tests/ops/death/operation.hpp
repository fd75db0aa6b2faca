// One operation of each kind, for tests of its failures.
#pragma once

#include <cstdint>

#include <hvd/core/internal/backend.hpp>

namespace hvd::test {

/// Runs one operation of `count` floats by each of `size` ranks. Its result is not checked.
void run_operation(OpKind kind, Backend& backend, std::int64_t count, int size, Deadline deadline);

}  // namespace hvd::test
