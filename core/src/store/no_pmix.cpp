#include <hvd/core/store.hpp>

#include "store/pmix_place.hpp"

namespace hvd {

std::shared_ptr<Store> connect_pmix_store(const Config&) { return nullptr; }

std::optional<PmixPlace> ask_pmix_place() { return std::nullopt; }

}  // namespace hvd
