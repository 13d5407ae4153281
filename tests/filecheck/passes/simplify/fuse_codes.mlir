// RUN: xdsl-opt %s -p pebble-fuse-codes --split-input-file | filecheck %s

// An activation and another layer behind a layer; what is rounded at the end stays so.
// CHECK-LABEL: @chain
func.func @chain(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %h_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %r = pebble.activate <relu> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: %h_q = pebble.convert %x
  // CHECK-NEXT: %y_q = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> activation <relu> {pebble.node = "a"} : {{.*}} -> tensor<?x2x!pebble.codes<s8 scale 0.25 zero 1>>
  // CHECK-NEXT: %y = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "b"} : {{.*}} -> tensor<?x2x!pebble.codes<u8 scale 2.0 zero 0>>
  // CHECK-NEXT: %[[Y:.*]] = pebble.convert %y
  // CHECK-NEXT: func.return %[[Y]]
  %y_q = pebble.convert %r : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<s8 scale 0.25 zero 1>>
  %y_0 = pebble.linear %y_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "b"} : (tensor<?x2x!pebble.codes<s8 scale 0.25 zero 1>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 2.0 zero 0>>
  %y = pebble.convert %y_0 : (tensor<?x2x!pebble.codes<u8 scale 2.0 zero 0>>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// What is rounded behind an activation is a rounded layer.
// CHECK-LABEL: @rounded
func.func @rounded(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %h_q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> {pebble.node = "a"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %r = pebble.activate <relu> %h : (tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: %r = pebble.linear %h_q, %w bias %b times %b : tensor<2xf32> activation <relu> {{.*}} -> tensor<?x2x!pebble.codes<u8 scale 0.25 zero 7>>
  // CHECK-NEXT: %y = pebble.convert %r
  %y = pebble.activate <quantize(0.25, 7.0)> %r : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A layer whose codes are found at each call takes what is added, and then the activation.
// CHECK-LABEL: @added
func.func @added(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %z = pebble.constant dense<0.0> : tensor<2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %h = pebble.linear %x, %w bias %z times %b : tensor<2xf32> precision "u8" {pebble.node = "a"} : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  %a = pebble.add %h, %b : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK: %y = pebble.linear %x, %w bias %z_1 times %b : tensor<2xf32> activation <relu> precision "u8" {pebble.node = "a"}
  %y = pebble.activate <relu> %a : (tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}

// -----

// A value is rounded to the same codes for each of its readers.
// CHECK-LABEL: @roundings
func.func @roundings(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  // CHECK-NEXT: %a = pebble.activate <quantize(0.5, 3.0)> %x
  // CHECK-NEXT: pebble.add %a, %a
  %a = pebble.activate <quantize(0.5, 3.0)> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %b = pebble.activate <quantize(0.5, 3.0)> %x : (tensor<?x2xf32>) -> tensor<?x2xf32>
  %y = pebble.add %a, %b : (tensor<?x2xf32>, tensor<?x2xf32>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
