#include "explorer.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "random.hpp"

namespace hvd::explore {
namespace {

constexpr int kTurn = 256;  // transitions of a walk before the next one continues

template <class T>
void write(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
T read(std::istream& in) {
  T value{};
  if (!in.read(reinterpret_cast<char*>(&value), sizeof(value))) {
    throw std::runtime_error("the file of the exploration is too short");
  }
  return value;
}

/// Another program may have other states, and other invariants. Shared libraries are left out.
std::uint64_t digest_of_program() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  StateHasher hasher;
  std::uint64_t word = 0;
  while (program.read(reinterpret_cast<char*>(&word), sizeof(word))) hasher.word(word);
  if (!program.eof()) throw std::runtime_error("cannot read /proc/self/exe");
  return hasher.hash().low;
}

/// Checks a state in which only time or a fault can change anything.
void check_if_end(const Explorable& state, const StateHash& hash, const std::vector<Move>& moves,
                  std::uint64_t& ends) {
  for (const Move& move : moves) {
    if (is_fault(move)) continue;
    if (move.kind != Move::Kind::time) return;
    const auto later = state.copy();
    later->apply(move);
    if (later->hash() != hash) return;
  }
  ++ends;
  state.check_end();
}

}  // namespace

Explorer::Explorer(Scenario scenario, int walks)
    : scenario_(std::move(scenario)), walks_(static_cast<std::size_t>(walks)) {
  const auto first = first_state(scenario_);
  visited_.insert(first->hash());
  for (std::size_t walk = 0; walk < walks_.size(); ++walk) {
    walks_[walk].push_back(frame_of(first->copy(), first->hash(), walk));
  }
}

Explorer::Frame Explorer::frame_of(std::unique_ptr<Explorable> state, const StateHash& hash,
                                   std::size_t walk) const {
  std::vector<Move> moves = state->moves();
  sim::Random random(hash.low + walk);
  random.shuffle(moves);
  return {std::move(state), std::move(moves), 0};
}

bool Explorer::complete() const {
  return std::all_of(walks_.begin(), walks_.end(), [](const Walk& walk) { return walk.empty(); });
}

std::optional<Counterexample> Explorer::run(std::uint64_t states) {
  while (!complete() && visited_.size() < states) {
    for (std::size_t walk = 0; walk < walks_.size(); ++walk) {
      try {
        for (int i = 0; i < kTurn && !walks_[walk].empty(); ++i) advance(walk);
      } catch (const std::exception& error) {
        Counterexample found{error.what(), {}};
        for (const Frame& frame : walks_[walk]) found.path.push_back(frame.moves[frame.next - 1]);
        return found;
      }
    }
  }
  return std::nullopt;
}

void Explorer::advance(std::size_t walk) {
  Walk& frames = walks_[walk];
  Frame& top = frames.back();
  if (top.next == top.moves.size()) {
    frames.pop_back();
    return;
  }
  const Move move = top.moves[top.next++];
  auto state = top.state->copy();
  state->apply(move);
  ++counts_.transitions;
  const StateHash hash = state->hash();
  if (!visited_.insert(hash)) return;
  Frame frame = frame_of(std::move(state), hash, walk);
  check_if_end(*frame.state, hash, frame.moves, counts_.ends);
  frames.push_back(std::move(frame));
  counts_.depth = std::max<std::uint64_t>(counts_.depth, frames.size() - 1);
}

// ---------------------------------------------------------------------------------------------
// Saving: the visited set, and of each walk the number of the next move in every frame.

std::string Explorer::identity() const {
  return fmt::format("hvd_explore 2 {} {} ranks {} walks", scenario_.name, scenario_.ranks,
                     walks_.size());
}

void Explorer::save(const std::string& file) const {
  const std::string fresh = file + ".new";
  {
    std::ofstream out(fresh, std::ios::binary);
    out << identity() << '\n';
    write(out, digest_of_program());
    write(out, counts_);
    for (const Walk& walk : walks_) {
      write(out, walk.size());
      for (const Frame& frame : walk) write(out, frame.next);
    }
    visited_.save(out);
    if (!out.flush()) throw std::runtime_error("cannot write " + fresh);
  }
  if (std::rename(fresh.c_str(), file.c_str()) != 0) {
    throw std::runtime_error("cannot write " + file);
  }
}

bool Explorer::load(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return false;
  std::string line;
  std::getline(in, line);
  if (line != identity()) {
    throw std::runtime_error(fmt::format("{} belongs to '{}'", file, line));
  }
  if (read<std::uint64_t>(in) != digest_of_program()) {
    throw std::runtime_error(
        file + " was written by another build, whose states are not checked by this one");
  }
  counts_ = read<Counts>(in);
  for (std::size_t walk = 0; walk < walks_.size(); ++walk) {
    Walk& frames = walks_[walk];
    frames.clear();
    const auto depth = read<std::size_t>(in);
    const auto state = first_state(scenario_);
    for (std::size_t i = 0; i < depth; ++i) {
      Frame frame = frame_of(state->copy(), state->hash(), walk);
      frame.next = read<std::size_t>(in);
      if (frame.next > frame.moves.size()) throw std::runtime_error(file + " is damaged");
      if (i + 1 < depth) state->apply(frame.moves.at(frame.next - 1));
      frames.push_back(std::move(frame));
    }
  }
  visited_ = {};
  visited_.load(in);
  return true;
}

}  // namespace hvd::explore
