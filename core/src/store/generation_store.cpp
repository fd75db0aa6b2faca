#include "store/generation_store.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace hvd {
namespace {

class GenerationStore final : public Store {
 public:
  GenerationStore(std::shared_ptr<Store> store, std::uint32_t generation)
      : store_(std::move(store)), prefix_(fmt::format("{}/", generation)) {}

  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) override {
    store_->set(prefix_ + std::string(key), value, deadline);
  }
  std::optional<Bytes> get(std::string_view key, Deadline deadline) override {
    return store_->get(prefix_ + std::string(key), deadline);
  }
  Bytes wait(std::string_view key, Deadline deadline) override {
    return store_->wait(prefix_ + std::string(key), deadline);
  }

 private:
  std::shared_ptr<Store> store_;
  std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> within_generation(std::shared_ptr<Store> store, std::uint32_t generation) {
  return std::make_shared<GenerationStore>(std::move(store), generation);
}

}  // namespace hvd
