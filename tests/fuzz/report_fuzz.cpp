// Decodes a rank's report, which an agent passes on to hvdrun.
#include <hvd/core/internal/rank_report.hpp>

#include "check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hvd::fuzz::check_canonical(hvd::fuzz::input(data, size), hvd::decode_rank_report,
                             [](const hvd::RankReport& report) { return hvd::encode(report); });
  return 0;
}
