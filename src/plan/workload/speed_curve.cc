#include "plan/workload/speed_curve.h"

#include <algorithm>
#include <utility>

namespace tessera::plan {

Result<SpeedCurve> SpeedCurve::Of(std::vector<Point> points) {
  Point before{0, 0};
  for (const Point& point : points) {
    if (!(point.sms > 0 && point.sms <= 1) || !(point.speed > 0 && point.speed <= 1))
      return Fail(ERANGE, "SMs and speed of a point must be above 0 and at most 1");
    if (point.sms <= before.sms) return Fail(EINVAL, "the SMs of the points must ascend");
    if (point.speed < before.speed) return Fail(EINVAL, "more SMs must not be slower");
    before = point;
  }
  if (before.speed < 1) {
    if (before.sms >= 1) return Fail(EINVAL, "the speed on all SMs must be 1");
    points.push_back({1, 1});
  }
  SpeedCurve curve;
  curve.points_ = std::move(points);
  return curve;
}

SpeedCurve SpeedCurve::Saturating(double at) {
  SpeedCurve curve;
  curve.points_ = {{at, 1}};
  return curve;
}

double SpeedCurve::At(double sms) const {
  Point before{0, 0};
  for (const Point& point : points_) {
    if (sms <= point.sms)
      return before.speed + (point.speed - before.speed) * (sms - before.sms) / (point.sms - before.sms);
    before = point;
  }
  return 1;
}

double SpeedCurve::SmsFor(double speed) const {
  Point before{0, 0};
  for (const Point& point : points_) {
    if (speed <= point.speed) {
      if (point.speed <= before.speed) return before.sms;
      return before.sms + (point.sms - before.sms) * (speed - before.speed) / (point.speed - before.speed);
    }
    before = point;
  }
  return before.sms;
}

}  // namespace tessera::plan
