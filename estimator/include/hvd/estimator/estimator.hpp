// Trains a model on data that lies in Parquet files.
#pragma once

#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/model.hpp>
#include <hvd/spawn.hpp>

namespace hvd {

/// Trains a model; docs/how-to/estimator.md is the guide. The constructor checks all options and
/// throws Errc::invalid_argument with the parameter and its value.
class Estimator {
 public:
  explicit Estimator(EstimatorOptions options);

  /// Inside a job (`hvd::init` was called, or a launcher gave this process a rank) it is
  /// collective: all ranks call it with the same options and data, and each gets the model. Outside
  /// a job it trains in this process alone, or runs `num_proc` processes of this program as
  /// `hvd::spawn` does (docs/how-to/spawn.md): they run the program up to this call, and only the
  /// first process returns from it.
  ///
  /// Throws Errc::invalid_argument: data without rows or columns that do not fit, a run that is not
  /// there or was begun with other parameters, `num_proc`; Errc::protocol: a damaged checkpoint or
  /// data file, by name; Errc::resource: a store that cannot be written or read; Errc::mismatch:
  /// ranks with different options; hvd::ProcessError: a process that it started failed; and what
  /// collectives throw. When one rank throws while it trains, it aborts the job's context, so that
  /// the others do not wait. Checkpoints that were saved before stay.
  Model fit(const ParquetSource& train, SpawnSite site = SpawnSite::here()) const;
  /// Validates with the rows of another source; `options.validation` must be empty.
  Model fit(const ParquetSource& train, const ParquetSource& validation,
            SpawnSite site = SpawnSite::here()) const;

  [[nodiscard]] const EstimatorOptions& options() const noexcept { return options_; }

 private:
  [[nodiscard]] Model fit_or_spawn(const ParquetSource& train, const ParquetSource* validation,
                                   SpawnSite site) const;

  EstimatorOptions options_;
};

}  // namespace hvd
