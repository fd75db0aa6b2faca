// Adapts a store of torch.distributed to the interface that a context uses while it starts.
#pragma once

#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <hvd/core/store.hpp>

namespace hvd::detail {

/// One thread at a time may use the result, which changes the timeout of `store`. `name` is for
/// errors.
[[nodiscard]] std::shared_ptr<Store> store_over(c10::intrusive_ptr<c10d::Store> store,
                                                std::string name);

}  // namespace hvd::detail
