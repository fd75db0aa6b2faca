// A model at work in the middle of a pipe.
#pragma once

#include <hvd/estimator/model.hpp>

namespace hvd {

/// Reads an Arrow IPC stream from `input` and writes one to `output`: for each record batch one of
/// as many rows with the output columns, written before the next one is read, so that whoever feeds
/// and reads it in turn never waits in vain. Neither descriptor is closed. Throws
/// Errc::invalid_argument (columns that do not fit), Errc::protocol (no such stream, or a damaged
/// one), Errc::resource (nobody reads).
void score_stream(const Model& model, int input, int output);

}  // namespace hvd
