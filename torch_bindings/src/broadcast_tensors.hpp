// One broadcast per tensor, all in flight at once.
#pragma once

#include <cstdint>
#include <string>

#include <hvd/core/context.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

/// In place. `prefix` goes before each name. Ends when all that was submitted has ended, then
/// throws the first error.
void broadcast_tensors(Context& context, const NamedTensors& tensors, const std::string& prefix,
                       int root, std::int32_t process_set = 0);

}  // namespace hvd
