// Draws the history as one panel for the loss and one for each metric, side by side.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include <hvd/estimator/history.hpp>

namespace hvd {

namespace {

constexpr double kPanelWidth = 420, kHeight = 360;
constexpr double kLeft = 64, kRight = 16, kTop = 70, kBottom = 48;
constexpr const char* kTrainStyle = R"(stroke="#1f5fb4" stroke-width="2")";
constexpr const char* kValidationStyle = R"(stroke="#d1662f" stroke-width="2")";

struct Point {
  double epoch = 0;
  double value = 0;
};

struct Panel {
  std::string name;
  std::vector<Point> train;
  std::vector<Point> validation;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::optional<double> value_of(const RowMeans& means, const std::string& name) {
  if (means.rows == 0) return std::nullopt;
  if (name == "loss") return means.loss;
  for (const auto& [metric, value] : means.metrics) {
    if (metric == name) return value;
  }
  return std::nullopt;
}

std::vector<Point> points_of(const History& history, const std::string& name,
                             RowMeans EpochHistory::*of) {
  std::vector<Point> points;
  for (const EpochHistory& epoch : history.epochs) {
    const auto value = value_of(epoch.*of, name);
    if (value && std::isfinite(*value))
      points.push_back({static_cast<double>(epoch.epoch), *value});
  }
  return points;
}

/// Returns a step of 1, 2 or 5 times a power of ten that divides `range` into about five parts.
double tick_step(double range) {
  const double rough = range / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

/// Maps epochs and values to the picture's coordinates.
class Chart {
 public:
  Chart(const Panel& panel, double left, double last_epoch)
      : left_(left), last_(std::max(last_epoch, 1.0)) {
    bool any = false;
    for (const auto* const points : {&panel.train, &panel.validation}) {
      for (const Point& point : *points) {
        low_ = any ? std::min(low_, point.value) : point.value;
        high_ = any ? std::max(high_, point.value) : point.value;
        any = true;
      }
    }
    if (high_ - low_ < 1e-12) high_ = low_ + std::max(1e-3, std::abs(low_) * 0.1);
    step_ = tick_step(high_ - low_);
    low_ = std::floor(low_ / step_) * step_;
    high_ = std::ceil(high_ / step_) * step_;
  }

  [[nodiscard]] double x(double epoch) const {
    const double share = last_ > 1 ? (epoch - 1) / (last_ - 1) : 0.5;
    return left_ + kLeft + share * (kPanelWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double value) const {
    return kHeight - kBottom - (value - low_) / (high_ - low_) * (kHeight - kTop - kBottom);
  }

  [[nodiscard]] std::string axes(const std::string& name) const {
    std::string out = fmt::format(R"(<text x="{}" y="{}" font-weight="bold">{}</text>)",
                                  left_ + kLeft, kTop - 12, escaped(name));
    out += '\n';
    const int ticks = static_cast<int>(std::lround((high_ - low_) / step_));
    for (int i = 0; i <= ticks; ++i) {
      const double value = low_ + i * step_;
      out += fmt::format(R"(<line x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}" stroke="#ddd"/>)"
                         R"(<text x="{3}" y="{4:.1f}" text-anchor="end">{5:.4g}</text>)",
                         left_ + kLeft, left_ + kPanelWidth - kRight, y(value), left_ + kLeft - 8,
                         y(value) + 4, std::abs(value) < step_ / 1e6 ? 0.0 : value);
      out += '\n';
    }
    const double every = std::max(1.0, tick_step(last_));
    for (double epoch = 1; epoch <= last_; epoch += every) {
      out += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>)", x(epoch),
                         kHeight - kBottom + 18, epoch);
      out += '\n';
    }
    return out + fmt::format(R"(<path d="M{0} {1}V{2}H{3}" fill="none" stroke="#333"/>)"
                             "\n"
                             R"(<text x="{4}" y="{5}" text-anchor="middle">epoch</text>)"
                             "\n",
                             left_ + kLeft, kTop, kHeight - kBottom, left_ + kPanelWidth - kRight,
                             left_ + (kPanelWidth + kLeft) / 2, kHeight - 12);
  }

  [[nodiscard]] std::string line(const std::vector<Point>& points, const char* style) const {
    std::string path;
    std::string dots;
    for (const Point& point : points) {
      path += fmt::format("{:.1f},{:.1f} ", x(point.epoch), y(point.value));
      dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.5" fill="none" {}/>)",
                          x(point.epoch), y(point.value), style);
    }
    return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>{}\n", style, path, dots);
  }

 private:
  double left_;
  double last_;
  double low_ = 0;
  double high_ = 1;
  double step_ = 1;
};

std::string legend(double right, bool with_validation) {
  std::string out;
  double x = right - (with_validation ? 160 : 70);
  const auto entry = [&](const char* name, const char* style) {
    out += fmt::format(
        R"(<line x1="{0}" x2="{1}" y1="24" y2="24" {2}/><text x="{3}" y="28">{4}</text>)", x,
        x + 18, style, x + 24, name);
    out += '\n';
    x += 80;
  };
  entry("training", kTrainStyle);
  if (with_validation) entry("validation", kValidationStyle);
  return out;
}

}  // namespace

std::string History::to_svg(std::string_view title) const {
  std::vector<std::string> names = {"loss"};
  if (!epochs.empty()) {
    for (const auto& metric : epochs.back().train.metrics) names.push_back(metric.first);
  }
  const double width = kPanelWidth * static_cast<double>(names.size());
  std::string out = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" )"
      R"(font-family="sans-serif" font-size="12" fill="#333">)"
      "\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      R"(<text x="{2}" y="28" font-size="16">{3}</text>)"
      "\n",
      width, kHeight, kLeft, escaped(title));
  bool with_validation = false;
  const double last = epochs.empty() ? 1 : epochs.back().epoch;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Panel panel{names[i], points_of(*this, names[i], &EpochHistory::train),
                      points_of(*this, names[i], &EpochHistory::validation)};
    with_validation = with_validation || !panel.validation.empty();
    const Chart chart(panel, kPanelWidth * static_cast<double>(i), last);
    out += chart.axes(panel.name);
    out += chart.line(panel.train, kTrainStyle);
    if (!panel.validation.empty()) out += chart.line(panel.validation, kValidationStyle);
  }
  return out + legend(width - kRight, with_validation) + "</svg>\n";
}

}  // namespace hvd
