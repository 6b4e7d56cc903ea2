#include "soft/ptx/testing.h"

#include <fstream>
#include <random>
#include <sstream>

namespace tessera::soft::ptx::testing {

std::string ReadSample(std::string_view name) {
  std::ifstream file(std::string(TESSERA_PTX_TESTDATA "/") + std::string(name));
  EXPECT_TRUE(file.good()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string KernelAround(std::string_view body) {
  return R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry test(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .f64 %d<8>; .reg .b64 %l<16>;
  ld.param.u64 %l0, [in];
  ld.param.u64 %l1, [out];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  mul.wide.u32 %l2, %r0, 64;
  add.s64 %l0, %l0, %l2;
  add.s64 %l1, %l1, %l2;
)" + std::string(body) +
         "\n  ret;\n}\n";
}

std::vector<Row> Compute(std::string_view body, const std::vector<Row>& inputs) {
  Device device;
  const auto module = device.Load(KernelAround(body));
  std::vector<Row> outputs(inputs.size());
  if (module == nullptr) return outputs;
  const std::uint64_t in = device.Upload(inputs), out = device.Upload(outputs);
  // An odd block size, so that partly filled warps are tried as well.
  const std::uint32_t block = inputs.size() < 45 ? static_cast<std::uint32_t>(inputs.size()) : 45;
  std::size_t blocks = inputs.size() / block;
  EXPECT_EQ(blocks * block, inputs.size());
  LaunchOk(device, *module, "test", {static_cast<std::uint32_t>(blocks)}, {block}, in, out);
  return device.Download<Row>(out, inputs.size());
}

namespace {

std::string_view WidthOf(char kind) { return kind == 'h' ? "b16" : kind == 'r' || kind == 'f' ? "b32" : "b64"; }

}  // namespace

std::string OneInstruction(std::string_view instruction, std::string_view result, std::string_view sources) {
  std::ostringstream body, operands;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string name = std::string("%") + sources[i] + std::to_string(i + 3);
    body << "ld.global." << WidthOf(sources[i]) << " " << name << ", [%l0+" << 8 * i << "];\n";
    operands << ", " << name;
  }
  const std::string name = "%" + std::string(result) + "7";
  body << instruction << " " << name << operands.str() << ";\n";
  body << "st.global." << WidthOf(result[0]) << " [%l1], " << name << ";\n";
  return body.str();
}

std::string Replaced(std::string text, std::string_view mark, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(mark, at)) != text.npos; at += by.size()) text.replace(at, mark.size(), by);
  return text;
}

std::vector<Row> ManyRows() {
  constexpr std::uint64_t kEdges[] = {0,          1,          2,          31,         32,         0x7f,
                                      0x80,       0xff,       0x7fff,     0x8000,     0xffff,     0x7fffffff,
                                      0x80000000, 0xffffffff, 0x3f800000, 1ull << 32, 1ull << 63, ~0ull};
  constexpr std::size_t kEdgeCount = std::size(kEdges);
  std::mt19937_64 random(20261120);
  std::vector<Row> rows(45 * 20);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      // Every pair of edges, then random bits of random length.
      const std::size_t edge = j % 2 == 0 ? i % kEdgeCount : i / kEdgeCount;
      rows[i][j] = edge < kEdgeCount && i < kEdgeCount * kEdgeCount ? kEdges[edge] : random() >> random() % 64;
    }
  }
  return rows;
}

void ExpectComputes(std::string_view instruction, std::string_view result, std::string_view sources, unsigned bits,
                    const std::function<std::uint64_t(const Row&)>& expected) {
  const std::vector<Row> inputs = ManyRows();
  const std::vector<Row> outputs = Compute(OneInstruction(instruction, result, sources), inputs);
  const std::uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(outputs[i][0] & mask, expected(inputs[i]) & mask)
        << instruction << std::hex << " of " << inputs[i][0] << ", " << inputs[i][1] << ", " << inputs[i][2];
  }
}

}  // namespace tessera::soft::ptx::testing
