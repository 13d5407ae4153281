// RUN: xdsl-opt %s -p pebble-fuse-codes --split-input-file | filecheck %s

// The value between is read twice.
// CHECK-LABEL: @read_twice
func.func @read_twice(%x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %h = pebble.linear %h_q
  %h_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y_q = pebble.convert %h :
  %y_q = pebble.convert %h : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %h, %y : tensor<?x2xf32>, tensor<?x2xf32>
}

// -----

// What has been rounded is rounded once more, to other codes.
// CHECK-LABEL: @rounded
func.func @rounded(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %[[H:.*]] = pebble.convert %{{.*}} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 0>>)
  %h_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %h_0 = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 0>>
  %h = pebble.convert %h_0 : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 0>>) -> tensor<?x2xf32>
  // CHECK: %y_q = pebble.convert %[[H]]
  %y_q = pebble.convert %h : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A second activation.
// CHECK-LABEL: @activated_twice
func.func @activated_twice(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %h = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> activation <tanh>
  %h_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> activation <tanh> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.activate <relu> %h
  %y = pebble.activate <relu> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// Codes that are found at each call need all rows of the layer before.
// CHECK-LABEL: @found
func.func @found(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  // CHECK: %h = pebble.linear %x
  %h = pebble.linear %x, %w bias %b times %b : tensor<2xf32> precision "u8" {pebble.node = "a"} : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.linear %h
  %y = pebble.linear %h, %w bias %b times %b : tensor<2xf32> precision "u8" {pebble.node = "a"} : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
