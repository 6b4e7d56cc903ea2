/* Vulkan without headers or a loader at link time, which Tessera's shim does not see:
 *   vulkan_limit limit MOST_BYTES  takes device-local memory until some is refused: "got BYTES", "refused RESULT" (0:
 *     it had all it wanted); holds it until a line on standard input, then frees it and takes it again: "again BYTES"
 *   vulkan_limit busy STEPS  compute dispatches that step words so often, one after the other; ordered about as
 *     orders.h says, one count is one dispatch
 * Ends with 77 where there is no Vulkan on a GPU; VULKAN_LIMIT_ON_CPU=1 lets it take a device on the CPU. */
#include <dlfcn.h>
#include <stdlib.h>

#include "orders.h"
#include "step_spirv.h"
#include "stepped.h"
#include "vulkan_abi.h"

enum { kMiB = 1 << 20, kMostPieces = 4000, kThreads = 128, kGroups = 32, kWords = kThreads * kGroups };

static void* library;
static VkPhysicalDevice gpu;
static VkDevice device;
static VkQueue queue;
static uint32_t family;
static VkPhysicalDeviceMemoryProperties memory;

/* A function of the loader, by its return type and arguments. */
#define VK(name, result, ...) ((result(*)(__VA_ARGS__))dlsym(library, name))

static void Check(int32_t result, const char* what) {
  if (result == 0) return;
  printf("%s: VkResult %d\n", what, result);
  exit(1);
}

static void Skip(const char* why) {
  printf("%s\n", why);
  exit(77);
}

static void ChooseGpu(VkInstance instance) {
  VkPhysicalDevice devices[16];
  uint32_t count = 16;
  if (VK("vkEnumeratePhysicalDevices", int32_t, VkInstance, uint32_t*, VkPhysicalDevice*)(instance, &count, devices) <
      0)
    count = 0;
  for (uint32_t i = 0; i < count && gpu == NULL; ++i) {
    VkPhysicalDeviceProperties properties;
    VK("vkGetPhysicalDeviceProperties", void, VkPhysicalDevice, VkPhysicalDeviceProperties*)(devices[i], &properties);
    if (properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU || getenv("VULKAN_LIMIT_ON_CPU")) gpu = devices[i];
  }
  if (gpu == NULL) Skip("no Vulkan GPU");
}

static void ChooseFamily(void) {
  VkQueueFamilyProperties families[32];
  uint32_t count = 32;
  VK("vkGetPhysicalDeviceQueueFamilyProperties", void, VkPhysicalDevice, uint32_t*, VkQueueFamilyProperties*)
  (gpu, &count, families);
  for (family = 0; family < count; ++family) {
    if (families[family].queueFlags & VK_QUEUE_COMPUTE_BIT) return;
  }
  Skip("no queue that computes");
}

static void Open(void) {
  library = dlopen("libvulkan.so.1", RTLD_NOW);
  if (library == NULL) Skip(dlerror());
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = 1 << 22};
  const VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
  VkInstance instance = NULL;
  if (VK("vkCreateInstance", int32_t, const void*, const void*, VkInstance*)(&create, NULL, &instance) != 0)
    Skip("no Vulkan driver");
  ChooseGpu(instance);
  ChooseFamily();
  VK("vkGetPhysicalDeviceMemoryProperties", void, VkPhysicalDevice, VkPhysicalDeviceMemoryProperties*)(gpu, &memory);
  const float priority = 1;
  const VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                          .queueFamilyIndex = family,
                                          .queueCount = 1,
                                          .pQueuePriorities = &priority};
  const VkDeviceCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues};
  Check(VK("vkCreateDevice", int32_t, VkPhysicalDevice, const void*, const void*, VkDevice*)(gpu, &info, NULL, &device),
        "vkCreateDevice");
  VK("vkGetDeviceQueue", void, VkDevice, uint32_t, uint32_t, VkQueue*)(device, family, 0, &queue);
}

/* The first memory type with these properties among `types`; the first of them all if there is none. */
static uint32_t TypeWith(uint32_t types, uint32_t properties) {
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    if ((types >> i & 1) && (memory.memoryTypes[i].propertyFlags & properties) == properties) return i;
  }
  return 0;
}

static int32_t Allocate(uint64_t bytes, uint32_t type, VkDeviceMemory* made) {
  const VkMemoryAllocateInfo info = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = bytes, .memoryTypeIndex = type};
  return VK("vkAllocateMemory", int32_t, VkDevice, const void*, const void*, VkDeviceMemory*)(device, &info, NULL,
                                                                                              made);
}

static VkDeviceMemory pieces[kMostPieces];
static size_t taken;

static uint64_t Take(uint64_t most, int32_t* refused) {
  const uint32_t type = TypeWith(~0u, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  uint64_t got = 0;
  *refused = 0;
  for (uint64_t bytes = 64 * (uint64_t)kMiB; bytes >= 2 * (uint64_t)kMiB; bytes /= 2) {
    while (got + bytes <= most && taken < kMostPieces) {
      const int32_t result = Allocate(bytes, type, &pieces[taken]);
      if (result != 0) {
        *refused = result;
        break;
      }
      ++taken;
      got += bytes;
    }
  }
  return got;
}

static int Limit(uint64_t most) {
  int32_t refused = 0;
  const uint64_t got = Take(most, &refused);
  printf("ready %d\ngot %llu\nrefused %d\n", (int)getpid(), (unsigned long long)got, refused);
  fflush(stdout);
  char line[16];
  if (fgets(line, sizeof line, stdin) == NULL) return 0;
  while (taken > 0) VK("vkFreeMemory", void, VkDevice, VkDeviceMemory, const void*)(device, pieces[--taken], NULL);
  const uint64_t again = Take(most, &refused);
  printf("again %llu\nworks\n", (unsigned long long)again);
  return again == 0;
}

/* A buffer of zeros that the host sees. */
static uint32_t* HostWords(VkBuffer* buffer) {
  const VkBufferCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = kWords * 4, .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
  Check(VK("vkCreateBuffer", int32_t, VkDevice, const void*, const void*, VkBuffer*)(device, &info, NULL, buffer),
        "vkCreateBuffer");
  VkMemoryRequirements needs;
  VK("vkGetBufferMemoryRequirements", void, VkDevice, VkBuffer, VkMemoryRequirements*)(device, *buffer, &needs);
  VkDeviceMemory backing;
  Check(Allocate(
            needs.size,
            TypeWith(needs.memoryTypeBits, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT),
            &backing),
        "vkAllocateMemory");
  Check(VK("vkBindBufferMemory", int32_t, VkDevice, VkBuffer, VkDeviceMemory, uint64_t)(device, *buffer, backing, 0),
        "vkBindBufferMemory");
  void* words = NULL;
  Check(VK("vkMapMemory", int32_t, VkDevice, VkDeviceMemory, uint64_t, uint64_t, uint32_t, void**)(
            device, backing, 0, kWords * 4, 0, &words),
        "vkMapMemory");
  memset(words, 0, kWords * 4);
  return words;
}

static VkDescriptorSetLayout set_layout;
static VkPipelineLayout layout;

static VkPipeline MakePipeline(void) {
  const VkDescriptorSetLayoutBinding binding = {.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                .descriptorCount = 1,
                                                .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  const VkDescriptorSetLayoutCreateInfo sets = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO, .bindingCount = 1, .pBindings = &binding};
  Check(VK("vkCreateDescriptorSetLayout", int32_t, VkDevice, const void*, const void*, VkDescriptorSetLayout*)(
            device, &sets, NULL, &set_layout),
        "vkCreateDescriptorSetLayout");
  const VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = 4};
  const VkPipelineLayoutCreateInfo layouts = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                              .setLayoutCount = 1,
                                              .pSetLayouts = &set_layout,
                                              .pushConstantRangeCount = 1,
                                              .pPushConstantRanges = &push};
  Check(VK("vkCreatePipelineLayout", int32_t, VkDevice, const void*, const void*, VkPipelineLayout*)(device, &layouts,
                                                                                                     NULL, &layout),
        "vkCreatePipelineLayout");
  const VkShaderModuleCreateInfo code = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = sizeof kStepShader, .pCode = kStepShader};
  VkShaderModule module;
  Check(VK("vkCreateShaderModule", int32_t, VkDevice, const void*, const void*, VkShaderModule*)(device, &code, NULL,
                                                                                                 &module),
        "vkCreateShaderModule");
  const VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                            .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                      .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                      .module = module,
                                                      .pName = "main"},
                                            .layout = layout,
                                            .basePipelineIndex = -1};
  VkPipeline pipeline;
  Check(VK("vkCreateComputePipelines", int32_t, VkDevice, uint64_t, uint32_t, const void*, const void*, VkPipeline*)(
            device, 0, 1, &info, NULL, &pipeline),
        "vkCreateComputePipelines");
  return pipeline;
}

static VkDescriptorSet MakeSet(VkBuffer buffer) {
  const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1};
  const VkDescriptorPoolCreateInfo pool_info = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, .maxSets = 1, .poolSizeCount = 1, .pPoolSizes = &size};
  VkDescriptorPool pool;
  Check(VK("vkCreateDescriptorPool", int32_t, VkDevice, const void*, const void*, VkDescriptorPool*)(device, &pool_info,
                                                                                                     NULL, &pool),
        "vkCreateDescriptorPool");
  const VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                            .descriptorPool = pool,
                                            .descriptorSetCount = 1,
                                            .pSetLayouts = &set_layout};
  VkDescriptorSet set;
  Check(VK("vkAllocateDescriptorSets", int32_t, VkDevice, const void*, VkDescriptorSet*)(device, &info, &set),
        "vkAllocateDescriptorSets");
  const VkDescriptorBufferInfo whole = {.buffer = buffer, .range = kWords * 4};
  const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                      .dstSet = set,
                                      .descriptorCount = 1,
                                      .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                      .pBufferInfo = &whole};
  VK("vkUpdateDescriptorSets", void, VkDevice, uint32_t, const void*, uint32_t, const void*)(device, 1, &write, 0,
                                                                                             NULL);
  return set;
}

/* One dispatch, recorded once and submitted again and again. */
static VkCommandBuffer Record(VkBuffer words, uint32_t steps) {
  const VkPipeline pipeline = MakePipeline();
  const VkDescriptorSet set = MakeSet(words);
  const VkCommandPoolCreateInfo pool_info = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                             .queueFamilyIndex = family};
  VkCommandPool pool;
  Check(VK("vkCreateCommandPool", int32_t, VkDevice, const void*, const void*, VkCommandPool*)(device, &pool_info, NULL,
                                                                                               &pool),
        "vkCreateCommandPool");
  const VkCommandBufferAllocateInfo info = {
      .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 1};
  VkCommandBuffer commands;
  Check(VK("vkAllocateCommandBuffers", int32_t, VkDevice, const void*, VkCommandBuffer*)(device, &info, &commands),
        "vkAllocateCommandBuffers");
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  Check(VK("vkBeginCommandBuffer", int32_t, VkCommandBuffer, const void*)(commands, &begin), "vkBeginCommandBuffer");
  VK("vkCmdBindPipeline", void, VkCommandBuffer, uint32_t, VkPipeline)
  (commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  VK("vkCmdBindDescriptorSets", void, VkCommandBuffer, uint32_t, VkPipelineLayout, uint32_t, uint32_t,
     const VkDescriptorSet*, uint32_t, const uint32_t*)
  (commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0, NULL);
  VK("vkCmdPushConstants", void, VkCommandBuffer, VkPipelineLayout, uint32_t, uint32_t, uint32_t, const void*)
  (commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, 4, &steps);
  VK("vkCmdDispatch", void, VkCommandBuffer, uint32_t, uint32_t, uint32_t)(commands, kGroups, 1, 1);
  Check(VK("vkEndCommandBuffer", int32_t, VkCommandBuffer)(commands), "vkEndCommandBuffer");
  return commands;
}

static int Busy(uint32_t steps) {
  VkBuffer buffer;
  const uint32_t* words = HostWords(&buffer);
  const VkCommandBuffer commands = Record(buffer, steps);
  const VkFenceCreateInfo fence_info = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkFence fence;
  Check(VK("vkCreateFence", int32_t, VkDevice, const void*, const void*, VkFence*)(device, &fence_info, NULL, &fence),
        "vkCreateFence");
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
  TakeOrders(steps);
  while (!OrderedToEnd()) {
    Check(VK("vkQueueSubmit", int32_t, VkQueue, uint32_t, const void*, VkFence)(queue, 1, &submit, fence),
          "vkQueueSubmit");
    Check(VK("vkWaitForFences", int32_t, VkDevice, uint32_t, const VkFence*, uint32_t, uint64_t)(device, 1, &fence, 1,
                                                                                                 UINT64_MAX),
          "vkWaitForFences");
    Check(VK("vkResetFences", int32_t, VkDevice, uint32_t, const VkFence*)(device, 1, &fence), "vkResetFences");
    CountWork(1);
  }
  return ReportDone(AllStepped(words, kWords, WorkDone() * steps));
}

int main(int argc, char** argv) { return LimitOrBusy(argc, argv, Open, Limit, Busy); }
