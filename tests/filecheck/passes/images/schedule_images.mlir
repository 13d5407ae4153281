// RUN: xdsl-opt %s -p 'pebble-schedule-images{l2_bytes=65536}' | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-schedule-images' | filecheck %s --check-prefix NEAR

// A value of 64 x 64 x 32 floats leaves a cache of 64 KB: a few rows of it stay there.
// CHECK: pebble.image_network %x threads 1 predicted_us 1.000000e+01 depth_first <[<ops 0 to 1, bands {{[0-9]+}}, "{{.*}} of 0.524 MB at a time, {{.*}} us less for memory">]>
// NEAR-NOT: depth_first
func.func @main(%x: tensor<?x4x64x64xf32>) -> tensor<?x4x64x64xf32> {
  %w = pebble.constant dense<1.0> : tensor<4x32xf32>
  %v = pebble.constant dense<1.0> : tensor<9x32xf32>
  %u = pebble.constant dense<1.0> : tensor<32x4xf32>
  %y = pebble.image_network %x threads 1 predicted_us 10.0 : (tensor<?x4x64x64xf32>) -> tensor<?x32x64x64xf32> {
  ^bb0(%a : tensor<?x4x64x64xf32>):
    %h = pebble.conv2d %a, %w window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x64x64xf32>, tensor<4x32xf32>) -> tensor<?x32x64x64xf32>
    %d = pebble.depthwise2d %h, %v window <[3, 3] strides [1, 1] dilations [1, 1] pads [1, 1, 1, 1]> : (tensor<?x32x64x64xf32>, tensor<9x32xf32>) -> tensor<?x32x64x64xf32>
    pebble.yield %d : tensor<?x32x64x64xf32>
  }
  %z = pebble.conv2d %y, %u window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x32x64x64xf32>, tensor<32x4xf32>) -> tensor<?x4x64x64xf32>
  func.return %z : tensor<?x4x64x64xf32>
}
