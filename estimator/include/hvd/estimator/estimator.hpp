// Trains a model on data that lies in Parquet files.
#pragma once

#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/model.hpp>
#include <hvd/spawn.hpp>

namespace hvd {

/// Trains a model; docs/how-to/estimator.md is the guide. The constructor checks all options and
/// throws Errc::invalid_argument, naming the parameter and its value. `fit` trains the module in
/// place, so one thread at a time may call it.
class Estimator {
 public:
  explicit Estimator(EstimatorOptions options);

  /// Inside a job (`hvd::init` was called, or a launcher gave this process a rank) it is
  /// collective: all ranks call it with the same options and data, and each gets the model. Outside
  /// a job it trains in this process alone, or starts `num_proc` processes of this program as
  /// `hvd::spawn` does (docs/how-to/spawn.md): they run the program up to this call and exit there,
  /// and only the calling process returns from it.
  ///
  /// Throws Errc::invalid_argument for data without rows, columns that do not fit, a run that does
  /// not exist or was begun with other parameters, and a wrong `num_proc`; Errc::protocol, naming
  /// the file, for a damaged checkpoint or data file; Errc::resource for a store that cannot be
  /// written or read; Errc::mismatch when ranks have different options or data; hvd::ProcessError
  /// when a process that it started fails; and what collectives throw. A rank that throws while it
  /// trains aborts the job's context, so that the others do not wait. Earlier checkpoints are kept.
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
