#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/batch_reader.hpp>

#include "data/sample_order.hpp"
#include "table/row_stream.hpp"
#include "table/share_plan.hpp"

namespace hvd {

using namespace detail;

namespace {

using Tensors = std::vector<torch::Tensor>;

void check_options(const BatchReaderOptions& options) {
  const auto fail = [](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("BatchReader: {}", why));
  };
  if (options.batch_size < 1) fail(fmt::format("a batch size of {}", options.batch_size));
  if (options.window_rows < 1) fail(fmt::format("a window of {} rows", options.window_rows));
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    fail(fmt::format("rank {} of {}", options.rank, options.size));
  }
}

std::vector<GroupSlice> share_of(const ParquetSource& source, const Selection& selection,
                                 const BatchReaderOptions& options) {
  const std::size_t groups = ParquetFiles::of(source).groups().size();
  std::vector<std::int64_t> chosen(groups);
  for (std::size_t group = 0; group < groups; ++group) {
    chosen[group] = selection.rows_of_group(group);
  }
  return share_of_rank(group_order(groups, options.shuffle, options.seed, options.epoch), chosen,
                       options.rank, options.size);
}

/// Makes the tensors of the window large enough for `rows` rows with the shapes of `piece`.
void make_room(Tensors& window, const Tensors& piece, std::int64_t rows) {
  window.resize(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    if (window[i].defined() && window[i].size(0) >= rows) continue;
    std::vector<std::int64_t> sizes = piece[i].sizes().vec();
    sizes.front() = rows;
    window[i] = torch::empty(sizes, piece[i].options());
  }
}

void put(Tensors& window, const Tensors& piece, std::int64_t at, std::int64_t from,
         std::int64_t count) {
  for (std::size_t i = 0; i < piece.size(); ++i) {
    window[i].narrow(0, at, count).copy_(piece[i].narrow(0, from, count));
  }
}

void append(std::vector<Tensors>& parts, const Tensors& window, const torch::Tensor& index) {
  Tensors chosen;
  for (const torch::Tensor& tensor : window) chosen.push_back(tensor.index_select(0, index));
  parts.push_back(std::move(chosen));
}

Tensors joined(const std::vector<Tensors>& parts) {
  if (parts.size() == 1) return parts.front();
  Tensors all;
  for (std::size_t i = 0; i < parts.front().size(); ++i) {
    Tensors of_one;
    for (const Tensors& part : parts) of_one.push_back(part[i]);
    all.push_back(torch::cat(of_one, 0));
  }
  return all;
}

}  // namespace

struct BatchReader::State {
  State(const ParquetSource& source, const Columns& columns, const Selection& selection,
        const BatchReaderOptions& with)
      : options(with),
        all_rows(selection.rows()),
        rows(rows_of_rank(all_rows, with.rank, with.size)),
        steps(steps_of(all_rows, with.size, with.batch_size)),
        stream(source, columns, selection, share_of(source, selection, with)) {
    options.window_rows = std::max(options.window_rows, options.batch_size);
    if (rows == 0 && steps > 0) none = RowStream::no_rows(source, columns);
  }

  void fill_window();

  BatchReaderOptions options;
  std::int64_t all_rows;
  std::int64_t rows;
  std::int64_t steps;
  RowStream stream;

  std::int64_t step = 0;
  std::int64_t read = 0;  ///< the number of rows read so far
  Rows piece;             ///< the last piece of the stream; the window may hold a part of it
  std::int64_t piece_taken = 0;
  Tensors features;  ///< the rows of the window
  Tensors labels;
  torch::Tensor order;  ///< the order of its rows
  std::int64_t used = 0;
  std::uint64_t windows = 0;
  Rows none;  ///< tensors with no rows and the right shapes
};

void BatchReader::State::fill_window() {
  const std::int64_t count = std::min(options.window_rows, rows - read);
  for (std::int64_t at = 0; at < count;) {
    if (piece_taken == piece.count) {
      std::optional<Rows> some = stream.next();
      if (!some) throw Error(Errc::internal, "BatchReader: the rows ended before the plan");
      piece = *std::move(some);
      piece_taken = 0;
      make_room(features, piece.features, count);
      make_room(labels, piece.labels, count);
    }
    const std::int64_t taken = std::min(count - at, piece.count - piece_taken);
    put(features, piece.features, at, piece_taken, taken);
    put(labels, piece.labels, at, piece_taken, taken);
    piece_taken += taken;
    at += taken;
  }
  read += count;

  std::vector<std::size_t> rows_in_order(static_cast<std::size_t>(count));
  std::iota(rows_in_order.begin(), rows_in_order.end(), std::size_t{0});
  if (options.shuffle) {
    const auto rank = static_cast<std::uint64_t>(options.rank);
    shuffle(rows_in_order, mixed(mixed(options.seed, rank), windows), options.epoch);
  }
  order = torch::tensor(std::vector<std::int64_t>(rows_in_order.begin(), rows_in_order.end()),
                        torch::kInt64);
  used = 0;
  ++windows;
}

BatchReader::BatchReader(ParquetSource source, Columns columns, Selection selection,
                         const BatchReaderOptions& options) {
  check_options(options);
  source.require(columns);
  state_ = std::make_unique<State>(source, columns, selection, options);
}

BatchReader::~BatchReader() = default;
BatchReader::BatchReader(BatchReader&&) noexcept = default;
BatchReader& BatchReader::operator=(BatchReader&&) noexcept = default;

std::int64_t BatchReader::steps() const noexcept { return state_->steps; }
std::int64_t BatchReader::rows() const noexcept { return state_->rows; }
std::int64_t BatchReader::rows_of_all_ranks() const noexcept { return state_->all_rows; }

std::optional<Batch> BatchReader::next() {
  State& state = *state_;
  if (state.step == state.steps) return std::nullopt;
  Batch batch;
  batch.rows = rows_before(state.step + 1, state.rows, state.steps) -
               rows_before(state.step, state.rows, state.steps);
  batch.rows_of_all_ranks =
      rows_of_step(state.all_rows, state.options.size, state.options.batch_size, state.step);
  ++state.step;
  if (batch.rows == 0) {
    batch.features = state.none.features;
    batch.labels = state.none.labels;
    return batch;
  }
  std::vector<Tensors> features;
  std::vector<Tensors> labels;
  for (std::int64_t missing = batch.rows; missing > 0;) {
    if (!state.order.defined() || state.used == state.order.size(0)) state.fill_window();
    const std::int64_t some = std::min(missing, state.order.size(0) - state.used);
    const torch::Tensor index = state.order.narrow(0, state.used, some);
    append(features, state.features, index);
    append(labels, state.labels, index);
    state.used += some;
    missing -= some;
  }
  batch.features = joined(features);
  batch.labels = joined(labels);
  if (state.none.features.empty()) {  // a step in which this rank has no rows needs empty tensors
    for (const auto& tensor : batch.features) {
      state.none.features.push_back(tensor.narrow(0, 0, 0).clone());
    }
    for (const auto& tensor : batch.labels) {
      state.none.labels.push_back(tensor.narrow(0, 0, 0).clone());
    }
  }
  return batch;
}

}  // namespace hvd
