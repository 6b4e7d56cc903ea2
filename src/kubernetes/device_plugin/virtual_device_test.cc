#include "kubernetes/device_plugin/virtual_device.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kubernetes/objects/names.h"

namespace tessera::kubernetes {
namespace {

const std::string kA = "GPU-911ede30-0000-0000-0000-00000000000a", kB = "GPU-911ede30-0000-0000-0000-00000000000b";

std::string Id(const std::string& uuid, std::uint32_t number) { return IdOf({uuid, number}); }

TEST(VirtualDevice, ItsIdIsReadBack) {
  EXPECT_EQ(Id(kA, 7), kA + "::7");
  const auto read = ReadId(kA + "::7");
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (VirtualDevice{kA, 7}));
  for (const char* wrong :
       {"", "GPU-1", "::1", "GPU-1::", "GPU-1::x", "GPU-1::1x", "GPU-1::-1", "GPU-1::01", "GPU-1::99999999999"})
    EXPECT_FALSE(ReadId(wrong)) << wrong;
}

TEST(VirtualDevice, EachGpuIsOfferedSeveralTimes) {
  const Json gpus = {{"gpus",
                      {{{"uuid", kA}, {"health", {{"failed", false}}}},
                       {{"uuid", kB}, {"health", {{"failed", true}}}},
                       {{"uuid", std::string(70, 'x')}}}}};
  const std::vector<OfferedDevice> offered = {
      {Id(kA, 0), true}, {Id(kA, 1), true}, {Id(kB, 0), false}, {Id(kB, 1), false}};
  EXPECT_EQ(OfferedDevices(gpus, 2), offered);
  EXPECT_TRUE(OfferedDevices(Json(), 2).empty());
  // The greatest number that there may be still fits the kubelet's limit, and the name of a vGPU.
  EXPECT_LE(Id(kA, 999).size(), 63u);
  EXPECT_LE(VGpusFor({Id(kA, 999)})->front().name.size(), 63u);
}

TEST(VirtualDevice, AContainerHasOneVGpuOnEachGpu) {
  const auto vgpus = VGpusFor({Id(kB, 10), Id(kB, 9), Id(kA, 3)});
  ASSERT_TRUE(vgpus);
  const std::vector<ContainerVGpu> expected = {{kA, "device-plugin." + kA + ".3", 1},
                                               {kB, "device-plugin." + kB + ".9", 2}};
  EXPECT_EQ(*vgpus, expected);
  EXPECT_EQ(UidIn(vgpus->front().name), "") << "slices count it as no claim's";
  EXPECT_FALSE(VGpusFor({}));
  EXPECT_EQ(VGpusFor({Id(kA, 1), "GPU-0"}).error().message, "\"GPU-0\" is no device of tessera.dev/vgpu");
}

TEST(VirtualDevice, ItsCdiDeviceIsNamedByTheVGpus) {
  EXPECT_EQ(CdiDeviceOf(*VGpusFor({Id(kA, 3), Id(kA, 4)})), "device-plugin." + kA + ".3");
  const std::string pair = CdiDeviceOf(*VGpusFor({Id(kA, 3), Id(kB, 1)}));
  EXPECT_EQ(pair, CdiDeviceOf(*VGpusFor({Id(kB, 1), Id(kA, 3)})));
  EXPECT_NE(pair, CdiDeviceOf(*VGpusFor({Id(kA, 1), Id(kB, 3)})));
  EXPECT_TRUE(pair.starts_with("device-plugin.2-gpus.")) << pair;
  EXPECT_TRUE(IsOfDevicePlugin(pair));
  EXPECT_FALSE(IsOfDevicePlugin("default.llm.0"));
}

}  // namespace
}  // namespace tessera::kubernetes
