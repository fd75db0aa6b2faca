// Decodes a rank's report, which an agent passes on to hvdrun, and its notes.
#include <hvd/core/internal/rank_report.hpp>

#include "check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = hvd::fuzz::input(data, size);
  hvd::fuzz::check_canonical(bytes, hvd::decode_rank_report,
                             [](const hvd::RankReport& report) { return hvd::encode(report); });
  if (const auto note = hvd::decode_rank_note(bytes)) {
    hvd::fuzz::check(hvd::Bytes(bytes.begin(), bytes.end()) == hvd::encode(*note));
  }
  return 0;
}
