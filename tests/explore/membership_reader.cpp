// Hashes the product's Membership.
#include <cstdint>

#include "state_reader.hpp"

namespace hvd::detail {

using explore::StateHasher;

void StateReader::read(StateHasher& hasher, const Membership& membership, Clock::time_point now) {
  const auto& [options, hosts, workers, generation, ranks, running, breaking, breaking_since,
               explained, all_started, did_not_come, silent, trained, done, finished, code,
               first_failure, too_few_since, wake_up] = membership;
  const auto words = [&hasher](const auto&... values) {
    (hasher.word(static_cast<std::uint64_t>(values)), ...);
  };
  const auto time = [&](const std::optional<Clock::time_point>& at) {
    words(at.has_value(), at ? (*at - now).count() : 0);
  };
  words(hosts.size(), workers.size(), generation, ranks.size(), running, breaking, explained,
        all_started, did_not_come.value_or(-1), silent.size(), trained, done, finished, code,
        first_failure);
  for (const auto& [slots, given_up, asked, leaves, cooldown, free_at, started_at, failed_at] :
       hosts) {
    words(slots, given_up, asked, leaves, cooldown.count());
    time(failed_at);
    // `started_at` matters only after a failure, and `free_at` only while it is in the future.
    if (failed_at) time(started_at);
    words(free_at > now ? (free_at - now).count() : 0);
  }
  for (const auto& [host, state, was_member, has_state, sent_away, leaves, told, assigned, since,
                    killed_at, unheard, killed] : workers) {
    words(host, state, was_member, has_state, sent_away, leaves, told, assigned, unheard, killed);
    time(killed_at);
    if (state == Membership::State::waiting) time(since);
  }
  for (const int worker : ranks) words(worker);
  for (const auto& [accuser, accused] : silent) words(accuser, accused);
  if (breaking) time(breaking_since);
  time(too_few_since);
  time(wake_up);
  static_cast<void>(options);  // never changes
}

}  // namespace hvd::detail
