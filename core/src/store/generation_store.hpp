// A store that outlives a context (hvdrun's, over shutdown and init) still holds its keys, and they
// lead to sockets that are closed.
#pragma once

#include <cstdint>
#include <memory>

#include <hvd/core/store.hpp>

namespace hvd {

/// `store` with keys that only contexts of the same `Config::generation` see.
[[nodiscard]] std::shared_ptr<Store> within_generation(std::shared_ptr<Store> store,
                                                       std::uint32_t generation);

}  // namespace hvd
