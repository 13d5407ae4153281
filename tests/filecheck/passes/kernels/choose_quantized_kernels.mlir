// RUN: xdsl-opt %s -p pebble-choose-quantized-kernels --split-input-file | filecheck %s

// Few weights in a small layer: look-ups take any number of rows.
// CHECK-LABEL: @lookups
func.func @lookups(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> kernel <byte_lookup, predicted [1: {{.*}}, 8: {{.*}}, 64: {{.*}}], "density 0.750; next byte_quads
  %y_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A convolution takes tiles of pixels; a dense product of all of them is priced, too.
// CHECK-LABEL: @pixels
func.func @pixels(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: pebble.conv2d %y_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <{{.*}}> kernel <byte_{{.*}}, blocks [{{.*}}: 1], predicted [64: {{.*}}], "density 0.750, 1 tiles of pixels; next byte_{{.*}} us"> dense_us {{.*}} : (
  %y_q = pebble.convert %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.conv2d %y_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}
