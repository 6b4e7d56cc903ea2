// f16 and bf16 arithmetic, single and in pairs (PTX ISA 9.7.4).
#include <algorithm>
#include <cmath>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/half.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

struct Add {
  double operator()(double a, double b, double) const { return a + b; }
};
struct Sub {
  double operator()(double a, double b, double) const { return a - b; }
};
struct Mul {
  double operator()(double a, double b, double) const { return a * b; }
};
struct MulAdd {
  double operator()(double a, double b, double c) const { return std::fma(a, b, c); }
};
struct Min {
  double operator()(double a, double b, double) const { return std::fmin(a, b); }
};
struct Max {
  double operator()(double a, double b, double) const { return std::fmax(a, b); }
};
struct Neg {
  double operator()(double a, double, double) const { return -a; }
};
struct Abs {
  double operator()(double a, double, double) const { return std::fabs(a); }
};
struct Exp2 {
  double operator()(double a, double, double) const { return std::exp2(a); }
};
struct HyperbolicTangent {
  double operator()(double a, double, double) const { return std::tanh(a); }
};

// The change that .sat or .relu makes to a result.
enum Clamp { kNoClamp, kSaturate, kRelu };

double Clamped(double value, std::int64_t clamp) {
  if (clamp == kNoClamp || std::isnan(value)) return clamp == kSaturate ? 0 : value;
  value = std::max(value, 0.0);
  return clamp == kSaturate ? std::min(value, 1.0) : value;
}

template <typename Format, unsigned elements, typename Operation>
void Compute(Warp& warp, const Instruction& in, LaneMask lanes) {
  Slot* d = warp.Destination(in.operand[0]);
  const Slot* a = warp.Source(in.operand[1]);
  const Slot* b = warp.Source(in.operand[2]);
  const Slot* c = warp.Source(in.operand[3]);
  ForLanes(lanes, [&](unsigned lane) {
    Slot result = 0;
    for (unsigned shift = 0; shift < 16 * elements; shift += 16) {
      const auto element = [=](Slot slot) { return Format::ToDouble(static_cast<std::uint16_t>(slot >> shift)); };
      const double value = Operation{}(element(a[lane]), element(b[lane]), element(c[lane]));
      result |= Slot{Format::FromDouble(Clamped(value, in.immediate))} << shift;
    }
    d[lane] = result;
  });
}

template <typename Operation, unsigned sources>
void Decode(Decoder& d) {
  d.modifiers().Ignore({{"rn", "ftz", "approx"}});  // flushing subnormal f16 numbers would only lose precision
  const Clamp clamp = d.modifiers().Take("sat") ? kSaturate : d.modifiers().Take("relu") ? kRelu : kNoClamp;
  const Type type = d.modifiers().TakeType();
  Instruction::Handler handler = nullptr;
  switch (type) {
    case Type::kF16:
      handler = &Compute<Half, 1, Operation>;
      break;
    case Type::kF16x2:
      handler = &Compute<Half, 2, Operation>;
      break;
    case Type::kBF16:
      handler = &Compute<Bfloat16, 1, Operation>;
      break;
    case Type::kBF16x2:
      handler = &Compute<Bfloat16, 2, Operation>;
      break;
    default:
      break;
  }
  Instruction& in = d.EmitSimple(handler, type, sources);
  // The operands that it does not have must still be ones that can be read.
  for (unsigned i = sources + 1; i < 4; ++i) in.operand[i] = in.operand[1];
  in.immediate = clamp;
}

}  // namespace

OpcodeTable HalfOpcodes() {
  static constexpr Opcode kTable[] = {
      {"add", Family::kHalf, &Decode<Add, 2>},  {"sub", Family::kHalf, &Decode<Sub, 2>},
      {"mul", Family::kHalf, &Decode<Mul, 2>},  {"fma", Family::kHalf, &Decode<MulAdd, 3>},
      {"min", Family::kHalf, &Decode<Min, 2>},  {"max", Family::kHalf, &Decode<Max, 2>},
      {"neg", Family::kHalf, &Decode<Neg, 1>},  {"abs", Family::kHalf, &Decode<Abs, 1>},
      {"ex2", Family::kHalf, &Decode<Exp2, 1>}, {"tanh", Family::kHalf, &Decode<HyperbolicTangent, 1>},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
