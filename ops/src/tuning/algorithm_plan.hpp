// The plan says which algorithm each part of the engine takes at which size. It can be written as a
// line of text and kept in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::detail {

inline constexpr std::size_t kKi = 1024;  ///< bounds of sizes are written in KiB

enum class Algorithm : std::uint8_t {
  collective,  ///< the MPI library's own
  ring,        ///< docs/internals/engine.md
  doubling,    ///< docs/internals/engine.md
  flat,        ///< several hosts as if they were one
  leaders,     ///< docs/internals/hierarchy.md
  lanes,       ///< docs/internals/hierarchy.md
};
inline constexpr int kAlgorithmCount = 6;

[[nodiscard]] std::string_view to_string(Algorithm algorithm) noexcept;

/// Holds an algorithm for every number of bytes: one for small sizes, and others from given bounds
/// on.
class AlgorithmTable {
 public:
  /// Takes the same algorithm at every size. `segment` is the number of bytes into which the
  /// algorithm cuts tensors; 0 means that it does not cut them; lanes then take 2 MiB.
  explicit AlgorithmTable(Algorithm algorithm, std::size_t segment = 0)
      : entries_{{0, algorithm, segment}} {}
  /// Takes this algorithm from `bytes` on, which is above every earlier bound.
  AlgorithmTable& from(std::size_t bytes, Algorithm algorithm, std::size_t segment = 0);

  [[nodiscard]] Algorithm at(std::size_t bytes) const noexcept { return entry(bytes).algorithm; }
  [[nodiscard]] std::size_t segment_at(std::size_t bytes) const noexcept {
    return entry(bytes).segment;
  }
  /// Tells whether some size takes this algorithm.
  [[nodiscard]] bool uses(Algorithm algorithm) const noexcept;

  /// Returns a text such as "leaders,16384:lanes/2097152", which means leaders, and from 16 KiB on
  /// lanes in segments of 2 MiB.
  [[nodiscard]] std::string text() const;
  /// Reads `text()`. Throws Errc::invalid_argument quoting what is malformed.
  [[nodiscard]] static AlgorithmTable parse(std::string_view text);

  friend bool operator==(const AlgorithmTable&, const AlgorithmTable&) = default;

 private:
  struct Entry {
    std::size_t from = 0;
    Algorithm algorithm = Algorithm::ring;
    std::size_t segment = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  [[nodiscard]] const Entry& entry(std::size_t bytes) const noexcept;

  std::vector<Entry> entries_;  ///< ascending; the first from 0
};

/// Holds a table for each part of the engine: "hosts" (flat, leaders, lanes), "ring" (doubling,
/// ring), and "mpi/" with an operation (collective, ring). The same plan gives the same bits.
class AlgorithmPlan {
 public:
  static constexpr std::string_view kHosts = "hosts";
  static constexpr std::string_view kRing = "ring";
  [[nodiscard]] static std::string mpi(OpKind kind);

  AlgorithmPlan& set(std::string_view part, AlgorithmTable table);
  /// Returns the table of a part, or `otherwise` where the plan has none.
  [[nodiscard]] AlgorithmTable of(std::string_view part, const AlgorithmTable& otherwise) const;
  /// Returns the parts of `defaults`, with the tables of this plan where it has them.
  [[nodiscard]] AlgorithmPlan over(const AlgorithmPlan& defaults) const;

  /// Returns "PART=TABLE PART=TABLE …", in the order of names.
  [[nodiscard]] std::string text() const;
  /// Reads `text()`. Throws Errc::invalid_argument quoting an unknown part, or an algorithm that
  /// the part does not have.
  [[nodiscard]] static AlgorithmPlan parse(std::string_view text);

  friend bool operator==(const AlgorithmPlan&, const AlgorithmPlan&) = default;

 private:
  std::map<std::string, AlgorithmTable, std::less<>> parts_;
};

/// Reads the plan of a topology from a file that has a line "SIGNATURE PLAN" for each. `signature`
/// has no blanks. Returns nothing where there is no such file or line. Throws
/// Errc::invalid_argument naming the file when the line is malformed, and Errc::resource when the
/// file cannot be read.
[[nodiscard]] std::optional<AlgorithmPlan> load_plan(const std::string& path,
                                                     std::string_view signature);
/// Replaces the line of this topology. Readers see the old file or the new one; if two jobs save at
/// the same time, one line may be lost. Throws Errc::resource, and then the file is as before.
void save_plan(const std::string& path, std::string_view signature, const AlgorithmPlan& plan);

}  // namespace hvd::detail
