// f32 and f64 arithmetic (PTX ISA 9.7.3). Approximations are computed as well as the host's library does, which is
// better than PTX asks for.
#include <cmath>
#include <limits>

#include "soft/ptx/op/decoder.h"
#include "soft/ptx/op/select.h"
#include "soft/ptx/run/lanes.h"

namespace tessera::soft::ptx {
namespace {

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct MulAdd {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};

// A NaN loses against a number unless it is asked for, and -0 is less than +0.
template <bool smaller, bool keep_nan>
struct Extreme {
  template <typename T>
  T operator()(T a, T b) const {
    if (std::isnan(a) || std::isnan(b)) {
      if (keep_nan) return std::numeric_limits<T>::quiet_NaN();
      return std::isnan(a) ? b : a;
    }
    if (a == b) return std::signbit(a) == smaller ? a : b;
    return (a < b) == smaller ? a : b;
  }
};

struct Abs {
  template <typename T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    return -a;
  }
};
struct CopySign {
  template <typename T>
  T operator()(T sign, T value) const {
    return std::copysign(value, sign);
  }
};
struct Reciprocal {
  template <typename T>
  T operator()(T a) const {
    return T{1} / a;
  }
};
struct SquareRoot {
  template <typename T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct ReciprocalRoot {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(1 / std::sqrt(static_cast<double>(a)));
  }
};
struct Sine {
  float operator()(float a) const { return std::sin(a); }
};
struct Cosine {
  float operator()(float a) const { return std::cos(a); }
};
struct Exp2 {
  float operator()(float a) const { return std::exp2(a); }
};
struct Log2 {
  float operator()(float a) const { return std::log2(a); }
};
struct HyperbolicTangent {
  float operator()(float a) const { return std::tanh(a); }
};
struct Saturate {
  template <typename T>
  T operator()(T a) const {
    return a > T{0} ? (a < T{1} ? a : T{1}) : T{0};
  }  // a NaN gives 0
};

// .sat is an instruction of its own behind the one that has it.
void EmitSaturate(Decoder& d) {
  const Operand result = d.program().code.back().operand[0];
  Instruction& in = d.Emit(&Unary<float, Saturate>);
  in.operand[0] = in.operand[1] = result;
}

template <typename Operation, int sources>
constexpr Instruction::Handler HandlerFor(Type type) {
  return SelectFloat(type, []<typename T>() -> Instruction::Handler {
    if constexpr (sources == 1)
      return &Unary<T, Operation>;
    else if constexpr (sources == 2)
      return &Binary<T, Operation>;
    else
      return &Ternary<T, Operation>;
  });
}

template <typename Operation, int sources>
void DecodeArithmetic(Decoder& d) {
  d.modifiers().Ignore({{"approx", "full"}});
  const std::uint32_t float_mode = d.modifiers().TakeRounding();
  const bool saturate = d.modifiers().Take("sat");
  const Type type = d.modifiers().TakeType();
  if (saturate && type != Type::kF32) d.Refuse();
  d.EmitSimple(HandlerFor<Operation, sources>(type), type, sources, float_mode);
  if (saturate) EmitSaturate(d);
}

template <typename Operation>
void DecodeApproximation(Decoder& d) {
  if (!d.modifiers().Take("approx")) d.Refuse();
  const std::uint32_t float_mode = d.modifiers().TakeRounding();
  const Type type = d.modifiers().TakeType();
  d.EmitSimple(type == Type::kF32 ? &Unary<float, Operation> : nullptr, type, 1, float_mode);
}

template <bool smaller>
void DecodeExtreme(Decoder& d) {
  const bool keep_nan = d.modifiers().Take("NaN");
  return keep_nan ? DecodeArithmetic<Extreme<smaller, true>, 2>(d) : DecodeArithmetic<Extreme<smaller, false>, 2>(d);
}

// testp: the class of a number.
constexpr std::string_view kClasses[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};

template <typename T>
void TestClass(Warp& warp, const Instruction& in, LaneMask lanes) {
  const Slot* a = warp.Source(in.operand[1]);
  LaneMask result = 0;
  ForLanes(lanes, [&](unsigned lane) {
    const T value = Get<T>(a[lane]);
    const int kind = std::fpclassify(value);
    const bool answers[] = {std::isfinite(value), kind == FP_INFINITE, kind != FP_NAN,
                            kind == FP_NAN,       kind == FP_NORMAL,   kind == FP_SUBNORMAL};
    result |= LaneMask{answers[in.immediate]} << lane;
  });
  warp.Set(in.predicate[0], lanes, result);
}

void DecodeTestClass(Decoder& d) {
  const int which = d.modifiers().TakeOneOf(kClasses, -1);
  const Type type = d.modifiers().TakeType();
  const auto handler = SelectFloat(type, []<typename T>() { return &TestClass<T>; });
  if (which < 0 || handler == nullptr) return d.Refuse();
  d.operands().ExpectCount(2);
  const Operand a = d.operands().Source(1, type);
  Instruction& in = d.Emit(handler);
  in.predicate[0] = d.operands().DestinationPredicate(d.operands().Syntax(0));
  in.operand[1] = a;
  in.immediate = which;
}

}  // namespace

OpcodeTable FloatOpcodes() {
  static constexpr Opcode kTable[] = {
      {"add", Family::kFloat, &DecodeArithmetic<Add, 2>},
      {"sub", Family::kFloat, &DecodeArithmetic<Sub, 2>},
      {"mul", Family::kFloat, &DecodeArithmetic<Mul, 2>},
      {"div", Family::kFloat, &DecodeArithmetic<Div, 2>},
      {"fma", Family::kFloat, &DecodeArithmetic<MulAdd, 3>},
      {"mad", Family::kFloat, &DecodeArithmetic<MulAdd, 3>},
      {"abs", Family::kFloat, &DecodeArithmetic<Abs, 1>},
      {"neg", Family::kFloat, &DecodeArithmetic<Neg, 1>},
      {"copysign", Family::kFloat, &DecodeArithmetic<CopySign, 2>},
      {"min", Family::kFloat, &DecodeExtreme<true>},
      {"max", Family::kFloat, &DecodeExtreme<false>},
      {"rcp", Family::kFloat, &DecodeArithmetic<Reciprocal, 1>},
      {"sqrt", Family::kFloat, &DecodeArithmetic<SquareRoot, 1>},
      {"rsqrt", Family::kFloat, &DecodeArithmetic<ReciprocalRoot, 1>},
      {"sin", Family::kFloat, &DecodeApproximation<Sine>},
      {"cos", Family::kFloat, &DecodeApproximation<Cosine>},
      {"ex2", Family::kFloat, &DecodeApproximation<Exp2>},
      {"lg2", Family::kFloat, &DecodeApproximation<Log2>},
      {"tanh", Family::kFloat, &DecodeApproximation<HyperbolicTangent>},
      {"testp", Family::kFloat, &DecodeTestClass},
  };
  return kTable;
}

}  // namespace tessera::soft::ptx
