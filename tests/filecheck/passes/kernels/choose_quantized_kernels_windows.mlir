// RUN: xdsl-opt %s -p "pebble-choose-quantized-kernels{prices=zen5}" | filecheck %s

// Sixteen outputs of many inputs of a window: from 8 rows on these stay in registers. Quads take as long for any rows.
// CHECK-LABEL: @windows
func.func @windows(%x: tensor<?x64xf32>) -> tensor<?x16xf32> {
  %w = pebble.constant dense<1.0> : tensor<64x16xf32>
  %b = pebble.constant dense<4.0> : tensor<16xf32>
  // CHECK: kernel <byte_lookup from 1, byte_windows from 8, byte_shared_4 from 49, blocks [byte_shared_4: 1], predicted [1: {{.*}}, 8: {{.*}}, 64: {{.*}}], "density 1.000; next byte_shared_2
  %y_q = pebble.convert %x : (tensor<?x64xf32>) -> tensor<?x64x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<16xf32> {pebble.node = "a"} : (tensor<?x64x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<64x16xf32>, tensor<16xf32>) -> tensor<?x16xf32>
  func.return %y : tensor<?x16xf32>
}
