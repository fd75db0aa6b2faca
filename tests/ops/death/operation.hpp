// One operation of each kind, for tests of how it fails.
#pragma once

#include <cstdint>

#include <hvd/core/backend.hpp>

namespace hvd::test {

/// One operation of `count` floats by each of `size` ranks; what comes out is not looked at.
void run_operation(OpKind kind, Backend& backend, std::int64_t count, int size, Deadline deadline);

}  // namespace hvd::test
