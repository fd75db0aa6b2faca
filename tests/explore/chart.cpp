// Shortens a counterexample, and draws it.
#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "explorer.hpp"

namespace hvd::explore {
namespace {

constexpr std::size_t kWidth = 42;  // of a column
constexpr std::size_t kMostMoves = 5'000;

std::string invariant_of(const std::string& violation) {
  return violation.substr(0, violation.find(':'));
}

/// Makes the moves of `path` that are possible, and then those that happen without faults, until
/// the end. Returns nothing when no invariant breaks.
std::optional<Counterexample> replay(const Scenario& scenario, const std::vector<Move>& path) {
  Counterexample made;
  const auto state = first_state(scenario);
  try {
    const auto make = [&](const Move& move) {
      made.path.push_back(move);
      state->apply(move);
    };
    for (const Move& move : path) {
      const std::vector<Move> moves = state->moves();
      if (std::find(moves.begin(), moves.end(), move) != moves.end()) make(move);
    }
    while (made.path.size() < kMostMoves) {
      const std::vector<Move> moves = state->moves();
      const auto next = std::find_if(moves.begin(), moves.end(),
                                     [](const Move& move) { return !is_fault(move); });
      const StateHash before = state->hash();
      if (next != moves.end()) {
        make(*next);
        if (next->kind != Move::Kind::time || state->hash() != before) continue;
        made.path.pop_back();
      }
      state->check_end();
      break;
    }
  } catch (const std::exception& error) {
    made.violation = error.what();
    return made;
  }
  return std::nullopt;
}

}  // namespace

Counterexample shortened(const Scenario& scenario, const Counterexample& found) {
  const std::string invariant = invariant_of(found.violation);
  Counterexample best = found;
  for (std::size_t chunk = std::max<std::size_t>(found.path.size() / 2, 1); chunk > 0;) {
    bool better = false;
    for (std::size_t at = 0; at < best.path.size();) {
      std::vector<Move> path = best.path;
      const auto from = path.begin() + static_cast<std::ptrdiff_t>(at);
      path.erase(from, from + static_cast<std::ptrdiff_t>(std::min(chunk, path.size() - at)));
      const auto made = replay(scenario, path);
      if (made && made->path.size() < best.path.size() &&
          invariant_of(made->violation) == invariant) {
        best = *made;
        better = true;
      } else {
        at += chunk;
      }
    }
    if (!better) chunk /= 2;
  }
  return best;
}

std::string chart_of(const Scenario& scenario, const Counterexample& found) {
  std::vector<ChartLine> lines;
  const auto state = first_state(scenario);
  try {
    for (const Move& move : found.path) state->apply(move, &lines);
    state->check_end();
  } catch (const std::exception&) {  // the violation, which is printed below
  }
  const std::vector<std::string> heads = state->columns();
  const std::size_t columns = heads.size();
  std::string text(kWidth * columns, ' ');
  for (std::size_t i = 0; i < columns; ++i) text.replace(i * kWidth, heads[i].size(), heads[i]);
  text += "\n";
  for (const ChartLine& line : lines) {
    std::string row(kWidth * columns, ' ');
    for (std::size_t i = 0; i < columns; ++i) row[i * kWidth] = '|';
    const auto to = static_cast<std::size_t>(line.column);
    std::size_t at = to * kWidth + 2;
    if (line.from >= 0) {
      const auto from = static_cast<std::size_t>(line.from);
      const std::size_t left = std::min(from, to) * kWidth;
      const std::size_t right = std::max(from, to) * kWidth;
      for (std::size_t i = left + 1; i < right; ++i) row[i] = '-';
      row[from < to ? right - 1 : left + 1] = from < to ? '>' : '<';
      at = left + 4;
    }
    const std::string label = line.from >= 0 ? " " + line.text + " " : line.text;
    row.replace(at, std::min(label.size(), row.size() - at), label);
    while (!row.empty() && row.back() == ' ') row.pop_back();
    text += row + "\n";
  }
  return text + fmt::format("breaks: {}\n", found.violation);
}

}  // namespace hvd::explore
