// Fewer bytes on the way.
#pragma once

#include <cstdint>

namespace hvd {

/// The type that values of f32 and f64 travel and are reduced in; every sum of two is rounded to
/// it. Other dtypes travel as they are. fp16 overflows beyond 65,504: prescale, or take bf16.
enum class Compression : std::uint8_t { none, fp16, bf16 };

}  // namespace hvd
