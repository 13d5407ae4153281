// RUN: xdsl-opt %s -p pebble-choose-quantized-kernels --split-input-file | filecheck %s

// Few weights in a small layer: look-ups take any number of rows.
// CHECK-LABEL: @lookups
func.func @lookups(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] kernel <byte_lookup, predicted [1: {{.*}}, 8: {{.*}}, 64: {{.*}}], "density 0.750; next byte_quads
  %y = pebble.quantized_layers %x, %w, %b, %b codes [#pebble.codes<u8 scale 0.5 zero 128>] activations [unit] nodes ["a"] : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
