// Decodes the values of the store during the start of a job: rank 0's answers, its announcement of
// a store, the ranks' records and the peer table.
#include <hvd/core/internal/bootstrap.hpp>
#include <hvd/core/store.hpp>

#include "check.hpp"
#include "net/peer_table.hpp"
#include "store/rendezvous.cpp"  // NOLINT(bugprone-suspicious-include): for the announcement

namespace {

/// Rank 1 of 2 reads `answer`. The result must be a value or a protocol error.
void read_answer(std::span<const std::byte> answer) {
  const auto store = hvd::make_hash_store();
  store->set("0/a", answer, hvd::Clock::now());
  const hvd::Bootstrap bootstrap(*store, 1, 2, hvd::Clock::now());
  try {
    const std::string value = bootstrap.share("a", nullptr);
    hvd::fuzz::check(value.size() + 1 == answer.size());
    hvd::fuzz::check(bootstrap.exchange("a", "").size() == 2);
  } catch (const hvd::Error& error) {
    hvd::fuzz::check(error.code() <= hvd::Errc::internal);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = hvd::fuzz::input(data, size);
  if (size <= 1 << 16) read_answer(bytes);
  hvd::fuzz::check_canonical(bytes, hvd::detail::Announcement::decode,
                             [](const auto& value) { return value.encode(); });
  hvd::fuzz::check_canonical(bytes, hvd::net::decode_peer_record,
                             [](const auto& value) { return hvd::net::encode(value); });
  hvd::fuzz::check_canonical(bytes, hvd::net::decode_peer_table,
                             [](const auto& value) { return hvd::net::encode(value); });
  return 0;
}
