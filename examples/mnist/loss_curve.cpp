#include "loss_curve.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace mnist {

namespace {

constexpr double kWidth = 800, kHeight = 450;
constexpr double kLeft = 70, kRight = 20, kTop = 50, kBottom = 55;
constexpr std::size_t kMostPoints = 1500;  // more points than pixels would not be visible

/// Returns a step of 1, 2 or 5 times a power of ten that divides `range` into about five parts.
double tick_step(double range) {
  const double rough = range / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::vector<double> running_mean(const std::vector<double>& values) {
  const std::size_t window = std::max<std::size_t>(1, values.size() / 50);
  std::vector<double> means;
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    if (i >= window) sum -= values[i - window];
    means.push_back(sum / static_cast<double>(std::min(i + 1, window)));
  }
  return means;
}

/// Maps steps and losses to the picture's coordinates.
class Chart {
 public:
  Chart(std::size_t steps, double highest)
      : steps_(static_cast<double>(std::max<std::size_t>(steps, 1))),
        y_step_(tick_step(highest)),
        highest_(std::ceil(highest / y_step_) * y_step_) {}

  [[nodiscard]] double x(double step) const {
    return kLeft + step / steps_ * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double loss) const {
    return kHeight - kBottom - loss / highest_ * (kHeight - kTop - kBottom);
  }

  [[nodiscard]] std::string axes() const {
    std::string out;
    for (int i = 0; i * y_step_ <= highest_ * 1.001; ++i) {
      out += fmt::format(R"(<line x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}" stroke="#ddd"/>)"
                         R"(<text x="{3}" y="{4:.1f}" text-anchor="end">{5:g}</text>)",
                         kLeft, kWidth - kRight, y(i * y_step_), kLeft - 8, y(i * y_step_) + 4,
                         i * y_step_);
      out += '\n';
    }
    const double x_step = std::max(1.0, tick_step(steps_));
    for (int i = 0; i * x_step <= steps_; ++i) {
      out += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>)",
                         x(i * x_step), kHeight - kBottom + 18, i * x_step);
      out += '\n';
    }
    out += fmt::format(R"(<path d="M{0} {1}V{2}H{3}" fill="none" stroke="#333"/>)", kLeft, kTop,
                       kHeight - kBottom, kWidth - kRight);
    return out + '\n';
  }

  [[nodiscard]] std::string line(const std::vector<double>& values, const char* style) const {
    const std::size_t stride = values.size() / kMostPoints + 1;
    std::string points;
    for (std::size_t i = 0; i < values.size(); i += stride) {
      points += fmt::format("{:.1f},{:.1f} ", x(static_cast<double>(i + 1)), y(values[i]));
    }
    return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style, points);
  }

 private:
  double steps_;
  double y_step_;
  double highest_;
};

}  // namespace

std::string to_svg(const LossCurve& curve) {
  std::vector<double> losses = curve.losses;
  for (double& loss : losses) loss = std::isfinite(loss) ? loss : 0;
  const double highest = losses.empty() ? 1 : *std::max_element(losses.begin(), losses.end());
  const Chart chart(losses.size(), std::max(highest, 1e-6));

  std::string out = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" )"
      R"(font-family="sans-serif" font-size="12" fill="#333">)"
      "\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      R"(<text x="{2}" y="28" font-size="16">{3}</text>)",
      kWidth, kHeight, kLeft, curve.title);
  out += '\n' + chart.axes();
  for (std::size_t i = 0; i < curve.epochs.size(); ++i) {
    const double x = chart.x(static_cast<double>(curve.epochs[i]));
    out += fmt::format(
        R"(<line x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}" stroke="#999" stroke-dasharray="3 3"/>)"
        R"(<text x="{3:.1f}" y="{4}" text-anchor="end" fill="#777">epoch {5}</text>)",
        x, kTop, kHeight - kBottom, x - 4, kTop + 12, i + 1);
    out += '\n';
  }
  out += chart.line(losses, R"(stroke="#c8d4e6" stroke-width="1")");
  out += chart.line(running_mean(losses), R"(stroke="#1f5fb4" stroke-width="2")");
  out += fmt::format(R"(<text x="{0}" y="{1}" text-anchor="middle">step</text>)"
                     "\n"
                     R"(<text x="14" y="{2}" font-size="11">loss</text>)",
                     kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 14, kTop + 4);
  return out + "\n</svg>\n";
}

}  // namespace mnist
