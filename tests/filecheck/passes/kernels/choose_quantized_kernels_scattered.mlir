// RUN: xdsl-opt %s -p "pebble-choose-quantized-kernels{prices=zen5}" --split-input-file | filecheck %s

// No two inputs are neighbours: four of them make a quad.
// CHECK-LABEL: @scattered
func.func @scattered(%x: tensor<?x16xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 0.0], [0.0, 0.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 2.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 2.0], [0.0, 0.0]]> : tensor<16x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: kernel <byte_lookup from 1, byte_scattered from 33, blocks [byte_scattered: 1], predicted [{{.*}}], "density 0.250; next byte_shared_2
  %y_q = pebble.convert %x : (tensor<?x16xf32>) -> tensor<?x16x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x16x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<16x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Both outputs read the same inputs, which are unpacked once.
// CHECK-LABEL: @shared
func.func @shared(%x: tensor<?x16xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]> : tensor<16x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: kernel <byte_lookup from 1, byte_shared_2 from 33, blocks [byte_shared_2: 1], predicted [{{.*}}], "density 0.250; next byte_shared_4
  %y_q = pebble.convert %x : (tensor<?x16xf32>) -> tensor<?x16x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x16x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<16x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
