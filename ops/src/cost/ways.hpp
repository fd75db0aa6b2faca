// Which algorithm an operation takes at which size, as data. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

enum class Way : std::uint8_t {
  collective,  ///< the foreign engine's own
  ring,        ///< docs/engine.md
  doubling,    ///< docs/engine.md
  flat,        ///< several hosts as if they were one
  leaders,     ///< docs/hierarchy.md
  lanes,       ///< docs/hierarchy.md
};

inline constexpr int kWayCount = 6;

[[nodiscard]] std::string_view to_string(Way way) noexcept;

/// A way for every number of bytes: one up to the first bound, then another.
class Ways {
 public:
  /// The same at every size. `segment`: bytes that a way which cuts tensors cuts them into; 0: it
  /// does not.
  explicit Ways(Way way, std::size_t segment = 0) : steps_{{0, way, segment}} {}
  /// This one from `bytes` on, which is above every earlier bound.
  Ways& from(std::size_t bytes, Way way, std::size_t segment = 0);

  [[nodiscard]] Way at(std::size_t bytes) const noexcept { return step(bytes).way; }
  [[nodiscard]] std::size_t segment_at(std::size_t bytes) const noexcept {
    return step(bytes).segment;
  }
  /// Whether some size goes this way.
  [[nodiscard]] bool uses(Way way) const noexcept;

  /// As in "leaders,16384:lanes/2097152": leaders, and from 16 KiB on lanes in segments of 2 MiB.
  [[nodiscard]] std::string text() const;
  /// Reads `text()`. Throws Errc::invalid_argument quoting what is not understood.
  [[nodiscard]] static Ways parse(std::string_view text);

  friend bool operator==(const Ways&, const Ways&) = default;

 private:
  struct Step {
    std::size_t from = 0;
    Way way = Way::ring;
    std::size_t segment = 0;
    friend bool operator==(const Step&, const Step&) = default;
  };
  [[nodiscard]] const Step& step(std::size_t bytes) const noexcept;

  std::vector<Step> steps_;  ///< ascending; the first from 0
};

}  // namespace hvd
