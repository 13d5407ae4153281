// RUN: xdsl-opt %s -p pebble-reorder-channels --split-input-file | filecheck %s

// Most connections leave channel 2, through a depthwise convolution.
// CHECK-LABEL: @uneven
func.func @uneven(%x: tensor<?x1x4x4xf32>) -> tensor<?x12x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %b = pebble.constant dense<[4.0, 5.0, 6.0]> : tensor<3xf32>
  %d = pebble.constant dense<[[7.0, 8.0, 9.0]]> : tensor<1x3xf32>
  %v = pebble.constant dense<[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]]> : tensor<3x12xf32>
  // CHECK-DAG: dense<{{.}}[3.000000e+00, 1.000000e+00, 2.000000e+00]]> : tensor<1x3xf32>
  // CHECK-DAG: dense<[6.000000e+00, 4.000000e+00, 5.000000e+00]> : tensor<3xf32>
  // CHECK-DAG: dense<{{.}}[9.000000e+00, 7.000000e+00, 8.000000e+00]]> : tensor<1x3xf32>
  // CHECK-DAG: dense<{{.}}[3.000000e+00, 3.000000e+00, {{.*}}], [1.000000e+00, 0.000000e+00, {{.*}}], [0.000000e+00, 2.000000e+00, {{.*}}]]> : tensor<3x12xf32>
  %h = pebble.conv2d %x, %w bias %b : tensor<3xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> activation <relu> : (tensor<?x1x4x4xf32>, tensor<1x3xf32>) -> tensor<?x3x4x4xf32>
  %g = pebble.depthwise2d %h, %d window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x4x4xf32>, tensor<1x3xf32>) -> tensor<?x3x4x4xf32>
  %y = pebble.conv2d %g, %v window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x4x4xf32>, tensor<3x12xf32>) -> tensor<?x12x4x4xf32>
  func.return %y : tensor<?x12x4x4xf32>
}

// -----

// So it is for codes, through a pooling of them; each channel keeps its multiplier.
// CHECK-LABEL: @codes
func.func @codes(%x: tensor<?x1x4x4xf32>) -> tensor<?x12x2x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %b = pebble.constant dense<[4.0, 5.0, 6.0]> : tensor<3xf32>
  %m = pebble.constant dense<[0.5, 0.25, 0.125]> : tensor<3xf32>
  %n = pebble.constant dense<1.0> : tensor<12xf32>
  %v = pebble.constant dense<[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]]> : tensor<3x12xf32>
  // CHECK-DAG: dense<{{.}}[3.000000e+00, 1.000000e+00, 2.000000e+00]]> : tensor<1x3xf32>
  // CHECK-DAG: dense<[6.000000e+00, 4.000000e+00, 5.000000e+00]> : tensor<3xf32>
  // CHECK-DAG: dense<[1.250000e-01, 5.000000e-01, 2.500000e-01]> : tensor<3xf32>
  // CHECK-DAG: dense<{{.}}[3.000000e+00, 3.000000e+00, {{.*}}], [1.000000e+00, 0.000000e+00, {{.*}}], [0.000000e+00, 2.000000e+00, {{.*}}]]> : tensor<3x12xf32>
  %q = pebble.convert %x : (tensor<?x1x4x4xf32>) -> tensor<?x1x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.conv2d %q, %w bias %b : tensor<3xf32> times %m : tensor<3xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x1x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<1x3xf32>) -> tensor<?x3x4x4x!pebble.codes<u8 scale 0.25 zero 0>>
  %p = pebble.pool2d "max" %h window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x4x4x!pebble.codes<u8 scale 0.25 zero 0>>) -> tensor<?x3x2x2x!pebble.codes<u8 scale 0.25 zero 0>>
  %y = pebble.conv2d %p, %v times %n : tensor<12xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x3x2x2x!pebble.codes<u8 scale 0.25 zero 0>>, tensor<3x12xf32>) -> tensor<?x12x2x2xf32>
  func.return %y : tensor<?x12x2x2xf32>
}
