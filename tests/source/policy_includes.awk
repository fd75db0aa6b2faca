# awk -f policy_includes.awk core/src/policy/*: the decisions are pure. They include nothing with which
# one could open a socket, start a thread, read a clock or the environment; the time is an argument.

BEGIN {
  split("algorithm chrono cmath cstddef cstdint deque functional iterator limits map numeric optional " \
        "set span string string_view type_traits unordered_map utility variant vector " \
        "fmt/format.h " \
        "hvd/core/error.hpp hvd/core/process_set.hpp hvd/core/request.hpp hvd/core/types.hpp " \
        "hvd/core/internal/all_ranks.hpp hvd/core/internal/elastic_messages.hpp " \
        "hvd/core/internal/membership.hpp hvd/core/internal/pair_set.hpp hvd/core/internal/recovery.hpp " \
        "hvd/core/internal/splitmix64.hpp hvd/core/internal/text.hpp " \
        "hvd/core/internal/wire.hpp net/tree_routes.hpp", headers, " ")
  for (i in headers) pure[headers[i]] = 1
}

function complain(what) {
  printf "%s:%d: not pure: %s\n", FILENAME, FNR, what
  ++impure
}

/^#include/ {
  ++includes
  header = $2
  gsub(/[<>"]/, "", header)
  if (!(header in pure) && header !~ /^policy\//) complain(header)
}
/(Clock|clock)::now|getenv/ { complain($0) }

END {
  printf "%d includes and calls, %d of them not pure\n", includes, impure
  exit impure > 0 || includes < 50
}
